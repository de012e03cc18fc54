"""Kustomizations, built by `kubectl kustomize` without a network, plugins, or files from elsewhere.

kustomize would fetch remote bases with git and http, and take a base from any directory of the machine. So every
kustomization that is reachable is read first, and each base must be in the checkout.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from kapsa.environments.program import Limits, private_environment, run_program
from kapsa.environments.redaction import printable, redact
from kapsa.environments.render.inputs import Manifest, RenderFailed
from kapsa.environments.render.yaml_documents import load_documents, load_objects
from kapsa.tools import find_tool

__all__ = ["build_kustomization", "kustomization_file"]

_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_BASES = ("resources", "bases", "components")
_PROGRAMS = ("generators", "transformers", "validators")
_FORBIDDEN = {
    "helmCharts": "set deployment.type to helm instead",
    "helmChartInflationGenerator": "set deployment.type to helm instead",
    "helmGlobals": "set deployment.type to helm instead",
}
_MOST = 200
_SHOWN = 1500


async def build_kustomization(root: Path, directory: Path, *, limits: Limits) -> list[Manifest]:
    """The objects of the kustomization in a directory of the checkout at `root`.

    :raises RenderFailed: it can't be built, or it refers to what is not in the checkout.
    """
    await asyncio.to_thread(_Survey(root).visit, directory)
    tool = await asyncio.to_thread(find_tool, "kubectl")
    with tempfile.TemporaryDirectory(prefix="kapsa-kustomize-", ignore_cleanup_errors=True) as private:
        home = Path(private)
        (home / "empty").mkdir()
        command = [str(tool.path), "kustomize", str(directory), "--load-restrictor=LoadRestrictionsRootOnly"]
        command += ["--enable-helm=false", "--enable-alpha-plugins=false", "--network=false"]
        # No git to be found: a base that the survey overlooked can't be fetched either.
        environment = private_environment(home) | {"PATH": str(home / "empty")}
        finished = await run_program(command, environment=environment, directory=home, limits=limits)
    if finished.code:
        said = " ".join(
            redact(printable(finished.complaint)).replace(f"{root}/", "").replace(str(root), ".").split()
        )
        raise RenderFailed(
            f"kustomize: {said.removeprefix('error: ')[:_SHOWN] or 'it failed and said nothing'}"
        )
    return load_objects(finished.output, "the built kustomization")


def kustomization_file(directory: Path) -> Path | None:
    """The file that makes a directory a kustomization."""
    return next((path for name in _FILES if (path := directory / name).is_file()), None)


class _Survey:
    """Looks at every kustomization that is reachable, each once."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._seen: set[Path] = set()

    def visit(self, directory: Path) -> None:
        if directory in self._seen:
            return
        self._seen.add(directory)
        if len(self._seen) > _MOST:
            raise RenderFailed(f"the kustomization refers to more than {_MOST} others")
        path = kustomization_file(directory)
        shown = directory.relative_to(self._root)
        if path is None:
            raise RenderFailed(
                f"there is no kustomization.yaml in {str(shown)!r}",
                hint="Set deployment.path to the directory of the kustomization",
                reason="NoKustomization",
            )
        documents = [
            each for each in load_documents(path.read_bytes(), str(shown / path.name)) if each is not None
        ]
        if len(documents) > 1 or not all(isinstance(each, dict) for each in documents):
            raise RenderFailed(f"{shown / path.name} is not one mapping")
        for document in documents:
            self._check(document, directory, str(shown / path.name))

    def _check(self, document: dict[str, Any], directory: Path, what: str) -> None:
        for field, instead in _FORBIDDEN.items():
            if document.get(field):
                raise RenderFailed(f"{what}: {field} would run a program: {instead}", reason="PluginRefused")
        for field in (*_BASES, *_PROGRAMS):
            for entry in self._entries(document, field, what):
                if field in _PROGRAMS and "\n" in entry:
                    continue  # written out in place: built-in ones work, and kustomize itself runs no others
                found = self._resolve(directory, entry, field, what)
                if found.is_dir():
                    self.visit(found)

    def _entries(self, document: dict[str, Any], field: str, what: str) -> list[str]:
        entries = document.get(field) or []
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            raise RenderFailed(f"{what}: {field} must be a list of paths")
        return entries

    def _resolve(self, directory: Path, entry: str, field: str, what: str) -> Path:
        try:
            found = (directory / entry).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise RenderFailed(
                f"{what}: {field} names {entry[:200]!r}, which is not in this repository; remote bases are not fetched",
                hint="Commit the base to the repository",
                reason="BaseRefused",
            ) from None
        if not found.is_relative_to(self._root) or Path(entry).is_absolute():
            raise RenderFailed(
                f"{what}: {field} names {entry[:200]!r}, which leaves the repository", reason="BaseRefused"
            )
        return found

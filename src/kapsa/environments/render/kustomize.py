"""Kustomizations, built by `kubectl kustomize` without a network, plugins, or files from elsewhere.

kustomize would fetch remote bases with git, and any file with http, and take a base from any directory of the machine. So
every kustomization that is reachable is read first: each base must be in the checkout, and no file may be a URL.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.manifests.yaml_documents import load_documents, load_objects
from kapsa.adapters.process.limited_process import ProcessLimits, private_environment, run_program
from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.redaction import printable, redact

__all__ = ["build_kustomization", "kustomization_file"]

_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_BASES = ("resources", "bases", "components")
_PLUGINS = ("generators", "transformers", "validators")
_FORBIDDEN = ("helmCharts", "helmChartInflationGenerator", "helmGlobals")
_NAME_FILES = frozenset(
    (
        *_BASES,
        *_PLUGINS,
        "configurations",
        "crds",
        "env",
        "envs",
        "files",
        "path",
        "paths",
        "patchesstrategicmerge",
    )
)
"""Fields whose texts kustomize opens. It takes their names in any case."""
_REMOTE = re.compile(r"(?:[^=\n]*=)?\s*https?:", re.I)
_MOST = 200
_SHOWN = 1500


async def build_kustomization(root: Path, directory: Path, *, limits: ProcessLimits) -> list[Manifest]:
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
        raise RenderFailed(f"kustomize: {_complaint(finished.complaint, root)}")
    return load_objects(finished.output, "the built kustomization")


def _complaint(text: str, root: Path) -> str:
    lines = [line for line in redact(printable(text)).splitlines() if not line.startswith("# Warning")]
    said = " ".join(" ".join(lines).replace(f"{root}/", "").replace(str(root), ".").split())
    return said.removeprefix("error: ")[:_SHOWN] or "it failed and said nothing"


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
        _refuse_remote_files(document, what)
        fields = {key.lower(): value for key, value in document.items()}
        if len(fields) < len(document):
            raise RenderFailed(f"{what} has a field twice, in two spellings")
        for field in _FORBIDDEN:
            if fields.get(field.lower()):
                raise RenderFailed(
                    f"{what}: {field} would run a program: set deployment.type to helm instead",
                    reason="PluginRefused",
                )
        for field in _BASES:
            for entry in _entries(fields, field, what):
                found = self._resolve(directory, entry, field, what)
                if found.is_dir():
                    self.visit(found)
        for field in _PLUGINS:
            for entry in _entries(fields, field, what):
                self._check_plugin(directory, entry, field, what)

    def _check_plugin(self, directory: Path, entry: str, field: str, what: str) -> None:
        """kustomize runs none but its own; what they are told to read is looked at."""
        content, name = entry.encode(), what
        if "\n" not in entry:
            found = self._resolve(directory, entry, field, what)
            if found.is_dir():
                raise RenderFailed(
                    f"{what}: {field} names the directory {entry!r}",
                    hint="Name its files",
                    reason="PluginRefused",
                )
            content, name = found.read_bytes(), str(found.relative_to(self._root))
        for document in load_documents(content, name):
            _refuse_remote_files(document, name)

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


def _entries(fields: Mapping[str, Any], field: str, what: str) -> list[str]:
    entries = fields.get(field) or []
    if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
        raise RenderFailed(f"{what}: {field} must be a list of paths")
    return entries


def _refuse_remote_files(document: Any, what: str) -> None:
    """Refuse files that kustomize would fetch. Its option against the network is about its functions only."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(str(key).lower(), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(field, inner) for inner in value]
        elif isinstance(value, str) and field in _NAME_FILES and _REMOTE.match(value):
            raise RenderFailed(
                f"{what}: {field} names {value[:200]!r}; nothing is fetched from elsewhere",
                hint="Commit the file to the repository",
                reason="BaseRefused",
            )

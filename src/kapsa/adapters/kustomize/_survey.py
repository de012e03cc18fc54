"""A survey of the kustomizations that one refers to, before kustomize reads any of them.

kustomize fetches remote bases with git and any file over HTTP, and takes a base from any directory of the
machine. The survey rejects all of that: each base must be in the checkout, and no file may be a URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.manifests.yaml_documents import load_documents

__all__ = ["check_references", "kustomization_file"]

_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_BASES = ("resources", "bases", "components")
_PLUGINS = ("generators", "transformers", "validators")
_FORBIDDEN = ("helmCharts", "helmChartInflationGenerator", "helmGlobals")
_FILE_FIELDS = frozenset(
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
"""Fields whose values kustomize opens as files, in lower case. kustomize accepts the names in any case."""
_REMOTE = re.compile(r"(?:[^=\n]*=)?\s*https?:", re.I)
_MOST = 200


def check_references(root: Path, directory: Path) -> None:
    """Check the kustomization in a directory of the checkout at `root`, and all that it refers to.

    Raises `RenderFailed` when one refers to anything outside the checkout, or would run a program.
    """
    _Survey(root).visit(directory)


def kustomization_file(directory: Path) -> Path | None:
    """Return the file that makes a directory a kustomization, or None."""
    return next((path for name in _FILES if (path := directory / name).is_file()), None)


class _Survey:
    """One pass over all reachable kustomizations, each visited once."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._visited: set[Path] = set()

    def visit(self, directory: Path) -> None:
        if directory in self._visited:
            return
        self._visited.add(directory)
        if len(self._visited) > _MOST:
            raise RenderFailed(f"the kustomization refers to more than {_MOST} others")
        path = kustomization_file(directory)
        shown = directory.relative_to(self._root)
        if path is None:
            raise RenderFailed(f"there is no kustomization.yaml in {str(shown)!r}", reason="NoKustomization")
        documents = [
            each for each in load_documents(path.read_bytes(), str(shown / path.name)) if each is not None
        ]
        if len(documents) > 1 or not all(isinstance(each, dict) for each in documents):
            raise RenderFailed(f"{shown / path.name} must hold a single mapping")
        for document in documents:
            self._check(document, directory, str(shown / path.name))

    def _check(self, document: dict[str, Any], directory: Path, file: str) -> None:
        _reject_remote_files(document, file)
        fields = {key.lower(): value for key, value in document.items()}
        if len(fields) < len(document):
            raise RenderFailed(f"{file} sets a field twice, in two spellings")
        for field in _FORBIDDEN:
            if fields.get(field.lower()):
                raise RenderFailed(
                    f"{file}: {field} would run helm, which is not allowed in a kustomization",
                    reason="PluginRefused",
                )
        for field in _BASES:
            for entry in _entries(fields, field, file):
                target = self._resolve(directory, entry, field, file)
                if target.is_dir():
                    self.visit(target)
        for field in _PLUGINS:
            for entry in _entries(fields, field, file):
                self._check_plugin(directory, entry, field, file)

    def _check_plugin(self, directory: Path, entry: str, field: str, file: str) -> None:
        """Check the configuration of a builtin plugin. kustomize runs no others, but these can read files."""
        content, name = entry.encode(), file
        if "\n" not in entry:
            target = self._resolve(directory, entry, field, file)
            if target.is_dir():
                raise RenderFailed(
                    f"{file}: {field} lists {entry!r}, which is a directory",
                    hint="List its files instead",
                    reason="PluginRefused",
                )
            content, name = target.read_bytes(), str(target.relative_to(self._root))
        for document in load_documents(content, name):
            _reject_remote_files(document, name)

    def _resolve(self, directory: Path, entry: str, field: str, file: str) -> Path:
        try:
            target = (directory / entry).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise RenderFailed(
                f"{file}: {field} lists {entry[:200]!r}, which is not in this repository; remote bases are not fetched",
                hint="Commit the base to the repository",
                reason="BaseRefused",
            ) from None
        if not target.is_relative_to(self._root) or Path(entry).is_absolute():
            raise RenderFailed(
                f"{file}: {field} lists {entry[:200]!r}, which is outside the repository",
                reason="BaseRefused",
            )
        return target


def _entries(fields: Mapping[str, Any], field: str, file: str) -> list[str]:
    entries = fields.get(field) or []
    if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
        raise RenderFailed(f"{file}: {field} must be a list of paths")
    return entries


def _reject_remote_files(document: Any, file: str) -> None:
    """Reject files that kustomize would fetch. Its `--network` option covers functions only."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(str(key).lower(), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(field, inner) for inner in value]
        elif isinstance(value, str) and field in _FILE_FIELDS and _REMOTE.match(value):
            raise RenderFailed(
                f"{file}: {field} lists {value[:200]!r}; remote files are not fetched",
                hint="Commit the file to the repository",
                reason="BaseRefused",
            )

"""Plain manifests: one file, or the YAML and JSON files of one directory, in the order of their names."""

from __future__ import annotations

from pathlib import Path

from kapsa.adapters.errors import LimitExceeded, RenderFailed
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.manifests.yaml_documents import YamlLimits, load_objects

__all__ = ["read_manifests"]

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_FILES = 500


def read_manifests(root: Path, path: Path, *, limits: YamlLimits | None = None) -> list[Manifest]:
    """Read the objects in a file, or in the files directly in a directory, of the checkout at `root`.

    Raises `RenderFailed` when a file does not hold objects, and `LimitExceeded` when there are too many or
    too large ones.
    """
    limits = limits or YamlLimits()
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    else:
        files = [path]
    if not files:
        raise RenderFailed(f"there are no YAML files in {path.name!r}", reason="NoManifests")
    if len(files) > _MOST_FILES or sum(each.stat().st_size for each in files) > limits.bytes:
        raise LimitExceeded(
            f"{path.name!r} holds more than {_MOST_FILES} manifests, or more than {limits.bytes // 1024} KB of them"
        )
    objects = [each for file in files for each in load_objects(file.read_bytes(), _name(root, file), limits)]
    if not objects:
        raise RenderFailed(f"the files in {path.name!r} hold no objects", reason="NoManifests")
    return objects


def _name(root: Path, file: Path) -> str:
    return str(file.relative_to(root)) if file.is_relative_to(root) else file.name

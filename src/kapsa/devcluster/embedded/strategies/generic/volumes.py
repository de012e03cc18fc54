"""Validation of sources of volumes that pods and PersistentVolumes share."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import absolute_path, needed, no_backsteps
from kapsa.schemas.field_errors import FieldError, not_supported, required

__all__ = ["host_path", "network_file_system"]

Object = dict[str, Any]

_HOST_PATH_TYPES = (
    *("", "BlockDevice", "CharDevice", "Directory"),
    *("DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
)


def host_path(source: Object, path: str) -> list[FieldError]:
    """Return the errors in a directory or file of the host."""
    target, kind = source.get("path") or "", source.get("type") or ""
    if not target:
        return [required(f"{path}.path")]
    errors = no_backsteps(target, f"{path}.path")
    if kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def network_file_system(source: Object, path: str) -> list[FieldError]:
    """Return the errors in a directory of an NFS server."""
    return needed("server", "path")(source, path) + absolute_path(source.get("path"), f"{path}.path")

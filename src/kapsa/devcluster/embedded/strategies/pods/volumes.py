"""Validation of a pod's volumes and of its containers' volume mounts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.schemas.field_errors import (
    NOT_FOUND,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kapsa.schemas.quantities import parse

__all__ = ["validate_mounts", "validate_volumes"]

Object = dict[str, Any]

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_LARGEST_MODE = 0o777
_DOWNWARD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)


def validate_volumes(volumes: list[Object], path: str) -> tuple[list[FieldError], set[str]]:
    """Return the errors in the volumes, and the names that mounts may use: those of the valid volumes."""
    errors: list[FieldError] = []
    usable: set[str] = set()
    for index, volume in enumerate(volumes):
        problems = _volume(volume, f"{path}[{index}]", usable)
        errors += problems
        if not problems:
            usable.add(volume["name"])
    return errors, usable


def validate_mounts(mounts: list[Object], path: str, volumes: set[str]) -> list[FieldError]:
    """Return the errors in the volume mounts of a container."""
    errors = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in volumes:
            errors.append(FieldError(NOT_FOUND, f"{where}.name", name))
        if not target:
            errors.append(required(f"{where}.mountPath"))
        if target in paths:
            errors.append(invalid(f"{where}.mountPath", target, "must be unique"))
        paths.add(target)
        if mount.get("subPath"):
            errors += _relative_path(mount["subPath"], f"{path}.subPath")
    return errors


def _volume(volume: Object, path: str, taken: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = volume.get("name") or ""
    given = [source for source in volume if source != "name" and volume[source] is not None]
    # Of two sources, kube-apiserver rejects the one that comes later in its list.
    given.sort(key=lambda source: _ORDER.index(source) if source in _ORDER else len(_ORDER))
    if not given:
        errors.append(required(path, "must specify a volume type"))
    errors += [forbidden(f"{path}.{extra}", "may not specify more than 1 volume type") for extra in given[1:]]
    for source in given[:1]:
        check = _SOURCES.get(source)
        if check is not None:
            errors += check(volume[source], f"{path}.{source}")
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors += rules.dns_label(name, f"{path}.name")
    if name in taken:
        errors.append(duplicate(f"{path}.name", name))
    return errors


def _empty_dir(source: Object, path: str) -> list[FieldError]:
    if source.get("sizeLimit") is not None and parse(source["sizeLimit"]) < 0:
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: Object, path: str) -> list[FieldError]:
    target, kind = source.get("path") or "", source.get("type") or ""
    if not target:
        return [required(f"{path}.path")]
    errors = _no_backsteps(target, f"{path}.path")
    if kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def _files(name: str) -> Callable[[Object, str], list[FieldError]]:
    """Return the check of a Secret or ConfigMap source, whose field `name` holds the object's name."""

    def check(source: Object, path: str) -> list[FieldError]:
        errors = [] if source.get(name) else [required(f"{path}.{name}")]
        return errors + _mode(source, path, "defaultMode") + _items(source, path)

    return check


def _items(source: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{index}]"
        if not item.get("key"):
            errors.append(required(f"{where}.key"))
        if not item.get("path"):
            errors.append(required(f"{where}.path"))
        else:
            errors += _relative_path(item["path"], f"{where}.path")
        errors += _mode(item, where, "mode")
    return errors


def _mode(source: Object, path: str, field: str) -> list[FieldError]:
    mode = source.get(field)
    if mode is None or 0 <= mode <= _LARGEST_MODE:
        return []
    return [invalid(f"{path}.{field}", mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _network_file_system(source: Object, path: str) -> list[FieldError]:
    errors = [required(f"{path}.{field}") for field in ("server", "path") if not source.get(field)]
    if source.get("path") and not source["path"].startswith("/"):
        errors.append(invalid(f"{path}.path", source["path"], "must be an absolute path"))
    return errors


def _downward(source: Object, path: str) -> list[FieldError]:
    errors = _mode(source, path, "defaultMode")
    for item in source.get("items") or ():
        field = (item.get("fieldRef") or {}).get("fieldPath")
        if field and field.partition("[")[0] not in _DOWNWARD_FIELDS:
            detail = f"error converting fieldPath: field label not supported: {field}"
            errors.append(invalid(f"{path}.fieldRef.fieldPath", field, detail))
        if item.get("path"):
            errors += _relative_path(item["path"], f"{path}.path")
    return errors


def _projected(source: Object, path: str) -> list[FieldError]:
    errors = _mode(source, path, "defaultMode")
    for index, part in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if part.get(kind) is not None:
                if not part[kind].get("name"):
                    errors.append(required(f"{where}.{kind}.name"))
                errors += _items(part[kind], f"{where}.{kind}")
        token = part.get("serviceAccountToken")
        if token is not None:
            # kube-apiserver omits the source from this path.
            errors += (
                _relative_path(token["path"], f"{path}.path")
                if token.get("path")
                else [required(f"{path}.path")]
            )
    return errors


def _requires(field: str) -> Callable[[Object, str], list[FieldError]]:
    return lambda source, path: [] if source.get(field) else [required(f"{path}.{field}")]


def _relative_path(target: str, path: str) -> list[FieldError]:
    """Return the errors in a path that must be relative and must not leave its root."""
    relative = [invalid(path, target, "must be a relative path")] if target.startswith("/") else []
    return relative + _no_backsteps(target, path)


def _no_backsteps(target: str, path: str) -> list[FieldError]:
    return [invalid(path, target, "must not contain '..'")] if ".." in target.split("/") else []


_SOURCES: dict[str, Callable[[Object, str], list[FieldError]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _files("secretName"),
    "nfs": _network_file_system,
    "persistentVolumeClaim": _requires("claimName"),
    "downwardAPI": _downward,
    "configMap": _files("name"),
    "projected": _projected,
    "csi": _requires("driver"),
    "ephemeral": _requires("volumeClaimTemplate"),
}
_ORDER = tuple(_SOURCES)

"""Validation of a pod's volumes and of its containers' volume mounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    SUBDOMAIN,
    Check,
    filled,
    given,
    needed,
    no_backsteps,
    one_of,
    present,
    relative_path,
)
from kapsa.devcluster.embedded.strategies.generic.claims import csi_driver, validate_claim_spec
from kapsa.devcluster.embedded.strategies.generic.volumes import host_path, network_file_system
from kapsa.devcluster.embedded.strategies.pods.environment import field_reference, resource_reference
from kapsa.schemas.field_errors import (
    NOT_FOUND,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
)
from kapsa.schemas.go_format import quote
from kapsa.schemas.quantities import parse

__all__ = ["validate_devices", "validate_mounts", "validate_volumes"]

Object = dict[str, Any]

_LARGEST_MODE = 0o777
_SHORTEST_TOKEN = 600
_DOWNWARD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)


def validate_volumes(
    volumes: list[Object], path: str, pod: str = ""
) -> tuple[list[FieldError], dict[str, Object]]:
    """Return the errors in the volumes of the pod of this name, and the valid volumes by name."""
    errors: list[FieldError] = []
    usable: dict[str, Object] = {}
    created = {
        f"{pod}-{each.get('name') or ''}" for each in volumes if pod and each.get("ephemeral") is not None
    }
    for index, volume in enumerate(volumes):
        problems = _volume(volume, f"{path}[{index}]", usable, pod)
        errors += problems
        if not problems:
            usable[volume["name"]] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{path}[{index}].persistentVolumeClaim.claimName", claim, detail))
    return errors, usable


def validate_mounts(container: Object, path: str, volumes: dict[str, Object]) -> list[FieldError]:
    """Return the errors in the volume mounts of a container."""
    errors: list[FieldError] = []
    paths: set[str] = set()
    devices = {each.get("name"): each.get("devicePath") for each in container.get("volumeDevices") or ()}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
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
        if name in devices:
            errors.append(invalid(f"{where}.name", name, "must not already exist in volumeDevices"))
        if target in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{where}.mountPath", target, detail))
        errors += _mount_options(mount, path, where, container)
    return errors


def _mount_options(mount: Object, path: str, where: str, container: Object) -> list[FieldError]:
    # The real server reports all but one of these at the list.
    errors = filled(relative_path)(mount.get("subPath"), f"{path}.subPath")
    if mount.get("subPathExpr"):
        if mount.get("subPath"):
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(f"{where}.subPathExpr", mount["subPathExpr"], detail))
        errors += relative_path(mount["subPathExpr"], f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    errors += given(_PROPAGATIONS)(propagation, f"{path}.mountPropagation")
    privileged = (container.get("securityContext") or {}).get("privileged")
    if propagation == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(forbidden(f"{path}.mountPropagation", detail))
    recursive, at = mount.get("recursiveReadOnly"), f"{path}.recursiveReadOnly"
    errors += given(_RECURSIONS)(recursive, at)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.append(forbidden(at, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            errors.append(
                forbidden(at, "may only be specified when mountPropagation is None or not specified")
            )
    return errors


def validate_devices(container: Object, path: str, volumes: dict[str, Object]) -> list[FieldError]:
    """Return the errors in the block devices of a container."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    paths: set[str] = set()
    mounts = {each.get("name"): each.get("mountPath") for each in container.get("volumeMounts") or ()}
    for index, device in enumerate(container.get("volumeDevices") or ()):
        where, name, target = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        errors += needed("name", "devicePath")(device, where)
        errors += _block_volume(name, f"{where}.name", volumes)
        if name and name in seen:
            errors.append(invalid(f"{where}.name", name, "must be unique"))
        if target in paths:
            errors.append(invalid(f"{where}.devicePath", target, "must be unique"))
        if no_backsteps(target, ""):
            errors.append(invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')"))
        if name in mounts:
            errors.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{where}.devicePath", target, detail))
        seen.add(name)
        paths.add(target)
    return errors


def _block_volume(name: str, path: str, volumes: dict[str, Object]) -> list[FieldError]:
    volume = volumes.get(name)
    if volume is None:
        return [FieldError(NOT_FOUND, path, name)]
    if volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None:
        return []
    detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
    return [invalid(path, name, detail)]


def _volume(volume: Object, path: str, taken: dict[str, Object], pod: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = volume.get("name") or ""
    given_sources = [source for source in volume if source != "name" and volume[source] is not None]
    # Of two sources, kube-apiserver rejects the one that comes later in its list.
    given_sources.sort(key=lambda source: _ORDER.index(source) if source in _ORDER else len(_ORDER))
    if not given_sources:
        errors.append(required(path, "must specify a volume type"))
    errors += [
        forbidden(f"{path}.{extra}", "may not specify more than 1 volume type") for extra in given_sources[1:]
    ]
    for source in given_sources[:1]:
        check = _SOURCES.get(source)
        if check is not None:
            errors += check(volume[source], f"{path}.{source}")
    if given_sources[:1] == ["ephemeral"] and pod and name:
        claim = f"{pod}-{name}"
        errors += [
            invalid(f"{path}.name", name, f"PVC name {quote(claim)}: {problem}")
            for problem in names.dns1123_subdomain(claim)
        ]
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


def _files(name: str) -> Check:
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
            errors += relative_path(item["path"], f"{where}.path")
        errors += _mode(item, where, "mode")
    return errors


def _mode(source: Object, path: str, field: str) -> list[FieldError]:
    mode = source.get(field)
    if mode is None or 0 <= mode <= _LARGEST_MODE:
        return []
    return [invalid(f"{path}.{field}", mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _downward_file(item: Object, path: str) -> list[FieldError]:
    """Return the errors in a file. The real server reports them at the source, without the item's index."""
    errors = present()(item.get("path"), f"{path}.path") + relative_path(item.get("path"), f"{path}.path")
    if item.get("fieldRef") is not None:
        errors += _FIELD(item["fieldRef"], f"{path}.fieldRef")
        if item.get("resourceFieldRef") is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid(path, "resource", detail))
    elif item.get("resourceFieldRef") is not None:
        errors += _RESOURCE(item["resourceFieldRef"], f"{path}.resourceFieldRef")
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + _mode(item, path, "mode")


def _downward(source: Object, path: str) -> list[FieldError]:
    errors = _mode(source, path, "defaultMode")
    for item in source.get("items") or ():
        errors += _downward_file(item, path)
    return errors


def _projected(source: Object, path: str) -> list[FieldError]:
    errors = _mode(source, path, "defaultMode")
    files: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if part.get(kind) is not None]
        for kind in kinds:
            errors += _PROJECTIONS[kind](part[kind], f"{where}.{kind}")
            for file, shown in _files_of(kind, part[kind]):
                if file in files:
                    errors.append(invalid(path, shown, "conflicting duplicate paths"))
                files.add(file)
        token = part.get("serviceAccountToken")
        if token is not None:
            # kube-apiserver omits the source from this path.
            errors += present(relative_path)(token.get("path"), f"{path}.path")
        if len(kinds) > 1:
            errors.append(forbidden(where, "may not specify more than 1 volume type per source"))
    return errors


def _files_of(kind: str, source: Object) -> Iterator[tuple[str, str]]:
    """Iterate over the files of a projection, each with the value that an error about it shows."""
    for item in source.get("items") or ():
        if item.get("path"):
            yield item["path"], item["path"] if kind == "downwardAPI" else source.get("name") or ""


def _projected_files(source: Object, path: str) -> list[FieldError]:
    return needed("name")(source, path) + _items(source, path)


def _projected_fields(source: Object, path: str) -> list[FieldError]:
    return [error for item in source.get("items") or () for error in _downward_file(item, path)]


def _token(source: Object, path: str) -> list[FieldError]:
    seconds, where = source.get("expirationSeconds") or 0, f"{path}.expirationSeconds"
    if seconds < _SHORTEST_TOKEN:
        return [invalid(where, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > 2**32:
        return [invalid(where, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _csi(source: Object, path: str) -> list[FieldError]:
    errors = csi_driver(source.get("driver"), f"{path}.driver")
    reference = source.get("nodePublishSecretRef")
    if reference is None:
        return errors
    if not reference.get("name"):
        return [*errors, required(f"{path}.nodePublishSecretRef.name")]
    # The real server reports the name at the source.
    return errors + SUBDOMAIN(reference["name"], f"{path}.name")


def _ephemeral(source: Object, path: str) -> list[FieldError]:
    template, where = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        return [required(where)]
    metadata = template.get("metadata") or {}
    errors = rules.labels(metadata.get("labels"), f"{where}.metadata.labels")
    extra = [field for field in metadata if field not in ("labels", "annotations") and metadata[field]]
    errors += [forbidden(f"{where}.metadata.{field}", "cannot be set") for field in extra]
    return errors + validate_claim_spec(template.get("spec") or {}, f"{where}.spec")


def _image(source: Object, path: str) -> list[FieldError]:
    return _PULL_POLICY(source.get("pullPolicy"), f"{path}.pullPolicy")


_PROPAGATIONS = one_of("Bidirectional", "HostToContainer", "None")
_RECURSIONS = one_of("Disabled", "Enabled", "IfPossible")
_PULL_POLICY = present(one_of("Always", "IfNotPresent", "Never"))
_FIELD = field_reference(*_DOWNWARD_FIELDS)
_RESOURCE = resource_reference(of_volume=True)
_PROJECTIONS: dict[str, Check] = {
    "secret": _projected_files,
    "configMap": _projected_files,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _token,
}
_SOURCES: dict[str, Check] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "secret": _files("secretName"),
    "nfs": network_file_system,
    "persistentVolumeClaim": needed("claimName"),
    "downwardAPI": _downward,
    "configMap": _files("name"),
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
_ORDER = tuple(_SOURCES)

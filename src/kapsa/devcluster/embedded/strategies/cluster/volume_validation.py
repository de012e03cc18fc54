"""Validation of PersistentVolumes."""

from __future__ import annotations

import posixpath
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SUBDOMAIN,
    Check,
    every,
    fields,
    filled,
    given,
    needed,
    no_backsteps,
    one_of,
    present,
)
from kapsa.devcluster.embedded.strategies.generic.claims import VOLUME_MODES, access_modes, csi_driver
from kapsa.devcluster.embedded.strategies.generic.node_selectors import node_selector
from kapsa.devcluster.embedded.strategies.generic.volumes import host_path, network_file_system
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required
from kapsa.schemas.quantities import parse

__all__ = ["validate_volume_spec"]

Object = dict[str, Any]

_NOT_SOURCES = frozenset(
    {"accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"}
    | {"storageClassName", "volumeAttributesClassName", "volumeMode"}
)


def validate_volume_spec(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the spec of a PersistentVolume."""
    modes = spec.get("accessModes") or []
    errors = [] if modes else [required(f"{path}.accessModes")]
    errors += access_modes(modes, f"{path}.accessModes")
    errors += _capacity(spec.get("capacity"), f"{path}.capacity")
    errors += _POLICIES(spec, path)
    errors += _sources(spec, path)
    if spec.get("hostPath") is not None and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        target = spec["hostPath"].get("path") or ""
        if target and posixpath.normpath(target) in ("/", "//"):
            detail = "may not be 'recycle' for a hostPath mount of '/'"
            errors.append(forbidden(f"{path}.persistentVolumeReclaimPolicy", detail))
    return errors + _CLASSES(spec, path) + _attributes_class(spec, path)


def _capacity(capacity: Object | None, path: str) -> list[FieldError]:
    errors = [] if capacity else [required(path)]
    if set(capacity or ()) != {"storage"}:
        errors.append(not_supported(path, capacity, ["storage"]))
    for name, amount in (capacity or {}).items():
        if parse(amount) <= 0:
            errors.append(invalid(f"{path}[{name}]", str(amount), "must be greater than zero"))
    return errors


def _sources(spec: Object, path: str) -> list[FieldError]:
    kinds = [field for field in _ORDER if spec.get(field) is not None]
    kinds += [field for field in spec if field not in _ORDER and field not in _NOT_SOURCES and spec[field]]
    if not kinds:
        return [required(path, "must specify a volume type")]
    detail = "may not specify more than 1 volume type"
    errors = [forbidden(f"{path}.{extra}", detail) for extra in kinds[1:]]
    if kinds[0] in _SOURCES:
        errors = _SOURCES[kinds[0]](spec[kinds[0]], f"{path}.{kinds[0]}") + errors
    if kinds[0] == "local" and spec.get("nodeAffinity") is None:
        errors.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    return errors


def _affinity(affinity: Object, path: str) -> list[FieldError]:
    if affinity.get("required") is None:
        return [required(f"{path}.required", "must specify required node constraints")]
    return node_selector(affinity["required"], f"{path}.required")


def _attributes_class(spec: Object, path: str) -> list[FieldError]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return []
    where = f"{path}.volumeAttributesClassName"
    errors = present(SUBDOMAIN, detail="an empty string is disallowed")(name, where)
    if spec.get("csi") is None:
        detail = "has to be specified when using volumeAttributesClassName"
        errors.append(required(f"{path}.csi", detail))
    return errors


_POLICIES = fields(
    persistentVolumeReclaimPolicy=filled(one_of("Delete", "Recycle", "Retain")), nodeAffinity=given(_affinity)
)
_CLASSES = fields(storageClassName=filled(SUBDOMAIN), volumeMode=given(VOLUME_MODES))
_SECRET = given(fields(name=present(SUBDOMAIN), namespace=present(LABEL)))
_SOURCES: dict[str, Check] = {
    "hostPath": host_path,
    "nfs": network_file_system,
    "local": every(needed("path"), fields(path=no_backsteps)),
    "csi": fields(
        driver=csi_driver,
        volumeHandle=present(),
        controllerPublishSecretRef=_SECRET,
        controllerExpandSecretRef=_SECRET,
        nodePublishSecretRef=_SECRET,
        nodeExpandSecretRef=_SECRET,
    ),
}
_ORDER = tuple(_SOURCES)

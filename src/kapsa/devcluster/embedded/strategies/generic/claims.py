"""Validation of the spec of a PersistentVolumeClaim, also in the templates of other kinds."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SUBDOMAIN,
    filled,
    given,
    needed,
    one_of,
)
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long
from kapsa.schemas.quantities import parse

__all__ = ["VOLUME_MODES", "access_modes", "csi_driver", "validate_claim_spec"]

Object = dict[str, Any]

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_LONGEST_DRIVER = 63
VOLUME_MODES = one_of("Block", "Filesystem")
_CORE_ONLY = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"


def validate_claim_spec(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the spec of a claim."""
    modes = spec.get("accessModes") or []
    errors: list[FieldError] = []
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    if spec.get("selector") is not None:
        errors += rules.label_selector(spec["selector"], f"{path}.selector")
    errors += access_modes(modes, f"{path}.accessModes")
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        errors.append(required(f"{path}.resources[storage]"))
    elif parse(amount) <= 0:
        errors.append(invalid(f"{path}.resources[storage]", str(amount), "must be greater than zero"))
    errors += filled(SUBDOMAIN)(spec.get("storageClassName"), f"{path}.storageClassName")
    errors += given(VOLUME_MODES)(spec.get("volumeMode"), f"{path}.volumeMode")
    for field in ("dataSource", "dataSourceRef"):
        errors += given(_data_source)(spec.get(field), f"{path}.{field}")
    errors += _sources_agree(spec, path)
    return errors + filled(SUBDOMAIN)(
        spec.get("volumeAttributesClassName"), f"{path}.volumeAttributesClassName"
    )


def access_modes(modes: list[str], path: str) -> list[FieldError]:
    """Return the errors in the access modes of a volume or a claim."""
    errors = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and any(mode in _MODES[:3] for mode in modes):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return errors


def csi_driver(name: Any, path: str) -> list[FieldError]:
    """Return the errors in the name of a CSI driver, in which case does not matter."""
    text = name or ""
    if not text:
        return [required(path)]
    errors = [too_long(path, _LONGEST_DRIVER)] if len(text) > _LONGEST_DRIVER else []
    return errors + [invalid(path, text, problem) for problem in names.dns1123_subdomain(text.lower())]


def _data_source(source: Object, path: str) -> list[FieldError]:
    errors = needed("name", "kind")(source, path)
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        errors.append(invalid(path, source.get("kind") or "", _CORE_ONLY))
    errors += filled(SUBDOMAIN)(group, f"{path}.apiGroup")
    return errors + filled(LABEL)(source.get("namespace"), f"{path}.namespace")


def _sources_agree(spec: Object, path: str) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return []
    # The real server shows the path that it is about as the value.
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        return [invalid(path, {}, detail)]
    same = all(source.get(field) == reference.get(field) for field in ("apiGroup", "kind", "name"))
    return [] if same else [invalid(path, {}, "must match dataSourceRef")]

"""Validation of the environment of containers, and of the references to fields that volumes share with it."""

from __future__ import annotations

import re
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SUBDOMAIN,
    Check,
    fields,
    no_backsteps,
    present,
    problems,
)
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, required

__all__ = ["field_reference", "resource_reference", "validate_environment"]

Object = dict[str, Any]

_NAME = re.compile(r"[ -<>-~]+")
_NAME_PROBLEM = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_FIELDS_OF_ENVIRONMENT = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_CONVERTIBLE = frozenset(
    {*_FIELDS_OF_ENVIRONMENT, "metadata.annotations", "metadata.labels"}
    | {"spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
_SUBSCRIPTED = re.compile(r"(.+)\['(.*)'\]", re.DOTALL)
_RESOURCES = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def _variable_name(name: str) -> list[str]:
    return [] if _NAME.fullmatch(name) else [_NAME_PROBLEM]


def validate_environment(container: Object, path: str) -> list[FieldError]:
    """Return the errors in the variables of a container and in the sources of others."""
    errors: list[FieldError] = []
    for index, variable in enumerate(container.get("env") or ()):
        where = f"{path}.env[{index}]"
        errors += _NAMED(variable.get("name"), f"{where}.name")
        if variable.get("valueFrom") is not None:
            errors += _source(variable, variable["valueFrom"], f"{where}.valueFrom")
    for index, source in enumerate(container.get("envFrom") or ()):
        errors += _all_of(source, f"{path}.envFrom", index)
    return errors


_NAMED = present(problems(_variable_name))
_REFERENCE = fields(name=present(SUBDOMAIN))
_KEY = fields(name=SUBDOMAIN, key=present(problems(names.config_key)))
_FILE_KEY = fields(key=_NAMED, volumeName=present(LABEL), path=present(no_backsteps))


def _all_of(source: Object, path: str, index: int) -> list[FieldError]:
    where, errors = f"{path}[{index}]", []
    if source.get("prefix"):
        errors += problems(_variable_name)(source["prefix"], f"{where}.prefix")
    kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
    for kind in kinds:
        errors += _REFERENCE(source[kind], f"{where}.{kind}")
    # The real server omits the index from these two.
    if not kinds:
        errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(kinds) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _source(variable: Object, source: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = [kind for kind in _SOURCES if source.get(kind) is not None]
    for kind in kinds:
        errors += _SOURCE_CHECKS[kind](source[kind], f"{path}.{kind}")
    if not kinds:
        listed = ", ".join(f"`{kind}`" for kind in _SOURCES[:-1])
        errors.append(invalid(path, "", f"must specify one of: {listed} or `{_SOURCES[-1]}`"))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(kinds) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def field_reference(*supported: str) -> Check:
    """Return the check of a reference to one of these fields of the pod, or to one of its labels."""

    def check(reference: Object, path: str) -> list[FieldError]:
        version, field = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
        where = f"{path}.fieldPath"
        if not version:
            return [required(f"{path}.apiVersion")]
        if not field:
            return [required(where)]
        match = _SUBSCRIPTED.fullmatch(field)
        problem = _not_convertible(version, field, match)
        if problem:
            return [invalid(where, field, f"error converting fieldPath: {problem}")]
        if match:
            key = match[2].lower() if match[1] == "metadata.annotations" else match[2]
            return [invalid(path, key, each) for each in names.label_key(key)]
        return [] if field in supported else [not_supported(where, field, sorted(supported))]

    return check


def _not_convertible(version: str, field: str, match: re.Match[str] | None) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if match:
        is_map = match[1] in ("metadata.annotations", "metadata.labels")
        return "" if is_map else f"field label does not support subscript: {field}"
    return "" if field in _CONVERTIBLE else f"field label not supported: {field}"


def resource_reference(*, of_volume: bool) -> Check:
    """Return the check of a reference to a limit or a request. A volume has to name the container."""

    def check(reference: Object, path: str) -> list[FieldError]:
        name = reference.get("resource") or ""
        errors: list[FieldError] = []
        if of_volume and not reference.get("containerName"):
            errors.append(required(f"{path}.containerName"))
        elif not name:
            errors.append(required(f"{path}.resource"))
        elif name not in _RESOURCES and not name.startswith(_HUGE_PAGES):
            errors.append(not_supported(f"{path}.resource", name, _RESOURCES))
        return errors + _divisor(name, str(reference.get("divisor") or "0"), path)

    return check


def _divisor(resource: str, divisor: str, path: str) -> list[FieldError]:
    kind = "hugepages" if resource.startswith(_HUGE_PAGES) else resource.partition(".")[2]
    units = ("1m", "1") if kind == "cpu" else _SIZES
    if divisor == "0" or divisor in units or kind not in ("cpu", "memory", "ephemeral-storage", "hugepages"):
        return []
    listed = "1m and 1" if kind == "cpu" else ", ".join(_SIZES)
    name = "local ephemeral storage" if kind == "ephemeral-storage" else kind
    detail = f"only divisor's values {listed} are supported with the {name} resource"
    return [invalid(f"{path}.divisor", resource, detail)]


_SOURCE_CHECKS: dict[str, Check] = {
    "fieldRef": field_reference(*_FIELDS_OF_ENVIRONMENT),
    "resourceFieldRef": resource_reference(of_volume=False),
    "configMapKeyRef": _KEY,
    "secretKeyRef": _KEY,
    "fileKeyRef": _FILE_KEY,
}

"""Validation of LimitRanges: names of types and resources, and amounts that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.policy.quota_names import CONTAINER_RESOURCES, STANDARD_RESOURCES
from kapsa.schemas.field_errors import FieldError, duplicate, forbidden, invalid, required
from kapsa.schemas.quantities import parse

__all__ = ["validate_limits"]

Object = dict[str, Any]

_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    (
        *("defaultRequest", "default", "defaultRequest"),
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)
"""The smaller field, the larger one, the field that an error is about, and its text."""
_SHOWN = {("min", "default"): "min", ("default", "max"): "max"}
"""The amount that an error shows, if it is not that of the field it is about."""


def validate_limits(limits: list[Object], path: str) -> list[FieldError]:
    """Return the errors in the limits of a LimitRange."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, limit in enumerate(limits):
        where, kind = f"{path}[{index}]", limit.get("type") or ""
        errors += _type(kind, f"{where}.type")
        if kind in seen:
            errors.append(duplicate(f"{where}.type", kind))
        seen.add(kind)
        errors += _names(limit, kind, where)
        resources = {name for field in _FIELDS for name in limit.get(field) or ()}
        for name in sorted(resources):
            errors += _amounts({field: (limit.get(field) or {}).get(name) for field in _FIELDS}, name, where)
    return errors


def _type(kind: str, path: str) -> list[FieldError]:
    problems = names.label_key(kind)
    if not problems and "/" not in kind and kind not in _TYPES:
        problems = ["must be a standard limit type or fully qualified"]
    return [invalid(path, kind, problem) for problem in problems]


def _names(limit: Object, kind: str, path: str) -> Iterator[FieldError]:
    for field in _FIELDS:
        amounts = limit.get(field) or {}
        if kind == "Pod" and field in ("default", "defaultRequest"):
            if amounts:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
            continue
        for name in amounts:
            yield from _name(name, kind, f"{path}.{field}[{name}]")
    if kind == "PersistentVolumeClaim" and not any(
        "storage" in (limit.get(field) or {}) for field in ("min", "max")
    ):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", detail)


def _name(name: str, kind: str, path: str) -> Iterator[FieldError]:
    problems = names.label_key(name)
    is_huge = name.startswith("hugepages-")
    if not problems and "/" not in name and not is_huge and name not in STANDARD_RESOURCES:
        problems = ["must be a standard resource type or fully qualified"]
    yield from (invalid(path, name, problem) for problem in problems)
    if kind not in ("Pod", "Container"):
        return
    if "/" not in name and not is_huge and name not in CONTAINER_RESOURCES:
        yield invalid(path, name, "must be a standard resource for containers")
    elif "/" in name and names.label_key(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _amounts(amounts: dict[str, Any], name: str, path: str) -> Iterator[FieldError]:
    for lower, upper, field, text in _ORDER:
        small, large = amounts[lower], amounts[upper]
        if small is not None and large is not None and parse(small) > parse(large):
            shown = amounts[_SHOWN.get((lower, upper), field)]
            yield invalid(f"{path}.{field}[{name}]", str(shown), text.format(small, large))
    yield from _ratio(amounts, name, f"{path}.maxLimitRequestRatio[{name}]")
    default, requested = amounts["default"], amounts["defaultRequest"]
    is_native = "/" not in name or "kubernetes.io/" in name
    overcommits = is_native and not name.startswith("hugepages-")
    if (
        not overcommits
        and default is not None
        and requested is not None
        and parse(default) != parse(requested)
    ):
        detail = f"default value {default} must equal to defaultRequest value {requested} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", str(requested), detail)


def _ratio(amounts: dict[str, Any], name: str, path: str) -> Iterator[FieldError]:
    ratio, low, high = (amounts[field] for field in ("maxLimitRequestRatio", "min", "max"))
    if ratio is None:
        return
    if parse(ratio) < 1:
        yield invalid(path, str(ratio), f"ratio {ratio} is less than 1")
    if low is not None and high is not None and parse(low) > 0 and parse(ratio) > parse(high) / parse(low):
        limit = float(parse(high) / parse(low))
        yield invalid(path, str(ratio), f"ratio {ratio} is greater than max/min = {limit:f}")

"""Validation of HorizontalPodAutoscalers: the bounds, the metrics and the behavior."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SEGMENT,
    Check,
    at_least,
    each,
    every,
    fields,
    given,
    one_of,
    present,
)
from kapsa.devcluster.embedded.strategies.pods.containers import resource_name
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required
from kapsa.schemas.quantities import parse

__all__ = ["validate_autoscaler", "validate_target_reference"]

Object = dict[str, Any]

_SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""The types of metrics and their fields, in the order in which kube-apiserver looks at them."""
_TARGETS = ("Utilization", "Value", "AverageValue")
_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800
_GROUP_MISSING = "apiVersion must specify API group"


def validate_autoscaler(spec: Object, metrics: list[Object]) -> list[FieldError]:
    """Return the errors in the spec of an autoscaler; `metrics` are those of either version."""
    low, high = spec["minReplicas"], spec.get("maxReplicas") or 0
    errors: list[FieldError] = []
    if low < 1:
        errors.append(invalid("spec.minReplicas", low, "must be greater than or equal to 1"))
    if high == 0:
        errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif high < 0:
        errors.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))
    if high < low:
        errors.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    errors += _REFERENCE(spec.get("scaleTargetRef"), "spec.scaleTargetRef")
    errors += each(_metric)(metrics, "spec.metrics")
    if low == 0 and not {"Object", "External"} & {metric.get("type") for metric in metrics}:
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", detail))
    return errors + _BEHAVIOR(spec.get("behavior"), "spec.behavior")


def validate_target_reference(target: Object) -> list[FieldError]:
    """Return the errors of the target's apiVersion. The one scalable kind of the core group needs no group."""
    version = target.get("apiVersion") or ""
    if "/" in version or target.get("kind") == "ReplicationController":
        return []
    return [invalid("spec.scaleTargetRef.apiVersion", version, _GROUP_MISSING)]


def _metric(metric: Object, path: str) -> list[FieldError]:
    kind = metric.get("type") or ""
    unknown = not_supported(f"{path}.type", kind, sorted(_SOURCES))
    errors = [] if kind else [required(f"{path}.type", "must specify a metric source type")]
    # The real server says it twice.
    errors += [] if kind in _SOURCES else [unknown, unknown]
    filled = [field for field in _SOURCES.values() if metric.get(field) is not None]
    for field in filled[:1]:
        errors += _CHECKS[field](metric[field], f"{path}.{field}")
    expected = _SOURCES.get(kind, "")
    if expected and expected not in filled:
        detail = "must populate information for the given metric source"
        errors.append(required(f"{path}.{expected}", detail))
    extra = [field for field in filled if field != expected] if len(filled) != 1 else []
    return errors + [
        forbidden(f"{path}.{field}", "must populate the given metric source only") for field in extra
    ]


def _target(target: Any, path: str) -> list[FieldError]:
    kind = (target or {}).get("type") or ""
    errors = [] if kind else [required(f"{path}.type", "must specify a metric target type")]
    if kind not in _TARGETS:
        detail = "must be either Utilization, Value, or AverageValue"
        errors.append(invalid(f"{path}.type", kind, detail))
    return errors + _AMOUNTS(target, path)


def _positive(value: Any, path: str) -> list[FieldError]:
    return [] if parse(value) > 0 else [invalid(path, str(value), "must be positive")]


def _needs(*alternatives: str, missing: str, both: tuple[str, str] = ("", "")) -> Check:
    """Return the check of a source's target: that it has one of these fields, and no two if `both` says so.

    The error of a missing field names the first alternative, that of two fields the one in `both`.
    """

    def check(source: Object, path: str) -> list[FieldError]:
        target, where = source.get("target") or {}, f"{path}.target"
        chosen = [field for field in alternatives if target.get(field) is not None]
        errors = _target(target, where)
        if not chosen:
            errors.append(required(f"{where}.{alternatives[0]}", missing))
        elif len(chosen) == 2 and both[0]:
            errors.append(forbidden(f"{where}.{both[0]}", both[1]))
        return errors

    return check


def _api_version(value: Any, path: str) -> list[FieldError]:
    parts = (value or "").split("/")
    if len(parts) > 2:
        return [invalid(path, value, f"unexpected GroupVersion string: {value}")]
    return []


_REFERENCE = fields(kind=present(SEGMENT), name=present(SEGMENT))
_DESCRIBED = fields(kind=present(SEGMENT), name=present(SEGMENT), apiVersion=_api_version)
_AMOUNTS = fields(
    value=given(_positive),
    averageValue=given(_positive),
    averageUtilization=given(at_least(1, "must be greater than 0")),
)
_IDENTIFIER = fields(name=present(SEGMENT, detail="must specify a metric name"))
_RAW_OR_UTILIZATION = _needs(
    "averageUtilization",
    "averageValue",
    missing="must set either a target raw value or a target utilization",
    both=("averageValue", "may not set both a target raw value and a target utilization"),
)
_CHECKS: dict[str, Check] = {
    "object": every(
        fields(describedObject=_DESCRIBED, metric=_IDENTIFIER),
        _needs("averageValue", "value", missing="must set either a target value or averageValue"),
    ),
    "external": every(
        fields(metric=_IDENTIFIER),
        _needs(
            "averageValue",
            "value",
            missing="must set either a target value for metric or a per-pod target",
            both=("value", "may not set both a target value for metric and a per-pod target"),
        ),
    ),
    "pods": every(
        fields(metric=_IDENTIFIER),
        _needs("averageValue", missing="must specify a positive target averageValue"),
    ),
    "resource": every(fields(name=present(detail="must specify a resource name")), _RAW_OR_UTILIZATION),
    "containerResource": every(
        fields(
            name=present(resource_name, detail="must specify a resource name"),
            container=present(LABEL, detail="must specify a container"),
        ),
        _RAW_OR_UTILIZATION,
    ),
}


def _window(value: int, path: str) -> list[FieldError]:
    if value < 0:
        return [invalid(path, value, "must be greater than or equal to zero")]
    return _within(_LONGEST_WINDOW)(value, path)


def _within(limit: int) -> Check:
    text = f"must be less than or equal to {limit}"
    return lambda value, path: [invalid(path, value, text)] if (value or 0) > limit else []


def _not_negative(value: Any, path: str) -> list[FieldError]:
    return [] if parse(value) >= 0 else [invalid(path, str(value), "must be greater than or equal to 0")]


_POLICY = fields(
    type=one_of("Percent", "Pods"),
    value=at_least(1),
    periodSeconds=every(at_least(1), _within(_LONGEST_PERIOD)),
)
_RULES = given(
    fields(
        stabilizationWindowSeconds=given(_window),
        selectPolicy=given(one_of("Disabled", "Max", "Min")),
        policies=present(each(_POLICY), detail="must specify at least one Policy"),
        tolerance=given(_not_negative),
    )
)
_BEHAVIOR = fields(scaleUp=_RULES, scaleDown=_RULES)

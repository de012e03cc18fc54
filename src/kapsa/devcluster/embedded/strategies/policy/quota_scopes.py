"""Validation of the scopes of ResourceQuotas: a scope that no object can have would make a quota count nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.rules import printed
from kapsa.devcluster.embedded.strategies.policy.quota_names import QUOTA_RESOURCES
from kapsa.schemas.field_errors import FieldError, invalid, required

__all__ = ["validate_scopes"]

Object = dict[str, Any]

_COMPUTE = frozenset(
    {"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_RESOURCES = {
    "Terminating": _COMPUTE,
    "NotTerminating": _COMPUTE,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _COMPUTE,
    "PriorityClass": _COMPUTE,
    "CrossNamespacePodAffinity": _COMPUTE,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The standard resources that each scope can be applied to."""
_WITH_VALUES = ("PriorityClass", "VolumeAttributesClass")
_EXISTS_ONLY = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_APPLIED = "unsupported scope applied to resource"


def validate_scopes(spec: Object) -> list[FieldError]:
    """Return the errors in the scopes and in the scope selector of a quota."""
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return [*_plain(spec), *_selected(spec, expressions)]


def _plain(spec: Object) -> Iterator[FieldError]:
    path, scopes = "spec.scopes", spec.get("scopes") or []
    for scope in scopes:
        if scope not in _RESOURCES:
            yield invalid(path, scopes, "unsupported scope")
        for _ in _unsuitable(spec, scope):
            yield invalid(path, scopes, _APPLIED)
    for _ in _conflicts(scopes):
        yield invalid(path, scopes, "conflicting scopes")


def _selected(spec: Object, expressions: list[Object]) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    for expression in expressions:
        scope, operator, values = (expression.get(field) for field in ("scopeName", "operator", "values"))
        if scope not in _RESOURCES:
            yield invalid(f"{path}.scopeName", scope or "", "unsupported scope")
        for _ in _unsuitable(spec, scope or ""):
            yield printed(invalid(path, "", _APPLIED), ("MatchExpressions", _in_go(expressions)))
        if scope in _RESOURCES and scope not in _WITH_VALUES and operator != "Exists":
            yield invalid(f"{path}.operator", operator or "", _EXISTS_ONLY)
        yield from _operator(operator or "", values, path)
    for _ in _conflicts(expression.get("scopeName") or "" for expression in expressions):
        yield invalid(path, spec.get("scopes"), "conflicting scopes")


def _operator(operator: str, values: list[str] | None, path: str) -> Iterator[FieldError]:
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{path}.values", detail)
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif values:
        detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        yield invalid(f"{path}.values", values, detail)


def _unsuitable(spec: Object, scope: str) -> list[str]:
    """Return the resources of a quota that a scope cannot be applied to."""
    suitable = _RESOURCES.get(scope, QUOTA_RESOURCES)
    return [name for name in sorted(spec.get("hard") or ()) if name in QUOTA_RESOURCES - suitable]


def _conflicts(scopes: Iterable[str]) -> list[set[str]]:
    given = set(scopes)
    return [pair for pair in _OPPOSITES if pair <= given]


def _in_go(expressions: list[Object]) -> list[Object]:
    """Return the expressions of a scope selector as Go prints them."""
    fields = {"ScopeName": "scopeName", "Operator": "operator", "Values": "values"}
    return [{key: each.get(field) for key, field in fields.items()} for each in expressions]

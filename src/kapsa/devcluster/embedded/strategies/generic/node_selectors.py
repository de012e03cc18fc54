"""Validation of node selectors, in pods and in persistent volumes."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.checks import LABEL_KEY, each, present
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, required
from kapsa.schemas.go_format import quote

__all__ = ["RENAMED_LABELS", "deprecated_labels", "node_selector", "node_selector_term", "preferred_term"]

Object = dict[str, Any]

RENAMED_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}
"""Labels of nodes that were renamed: since which version, and the new name."""
_NOT_AN_OPERATOR = "not a valid selector operator"


def node_selector_term(term: Object, path: str, *, strict: bool = True) -> list[FieldError]:
    """Return the errors in a term. Values of labels are checked only if `strict`."""
    errors: list[FieldError] = []
    for index, each_one in enumerate((term or {}).get("matchExpressions") or ()):
        errors += _expression(each_one, f"{path}.matchExpressions[{index}]", strict=strict)
    for index, each_one in enumerate((term or {}).get("matchFields") or ()):
        errors += _field(each_one, f"{path}.matchFields[{index}]")
    return errors


def preferred_term(term: Object, path: str) -> list[FieldError]:
    """Return the errors in a term that a node affinity prefers. Values of its labels are not checked."""
    return node_selector_term(term, path, strict=False)


def _expression(expression: Object, path: str, *, strict: bool) -> list[FieldError]:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    errors: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator, _NOT_AN_OPERATOR))
    errors += LABEL_KEY(expression.get("key"), f"{path}.key")
    for index, value in enumerate(values if strict else ()):
        errors += [invalid(f"{path}.values[{index}]", value, each) for each in names.label_value(value)]
    return errors


def _field(expression: Object, path: str) -> list[FieldError]:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    errors: list[FieldError] = []
    if operator not in ("In", "NotIn"):
        errors.append(invalid(f"{path}.operator", operator, _NOT_AN_OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", detail))
    key = expression.get("key") or ""
    if key != "metadata.name":
        return [*errors, invalid(f"{path}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        errors += [invalid(f"{path}.values[{index}]", value, each) for each in names.dns1123_subdomain(value)]
    return errors


_TERMS = present(each(node_selector_term), detail="must have at least one node selector term")


def node_selector(selector: Object, path: str) -> list[FieldError]:
    """Return the errors in a node selector."""
    return _TERMS((selector or {}).get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms")


def deprecated_labels(term: Object, path: str) -> list[str]:
    """Return the warnings about a term that selects nodes by labels that were renamed."""
    return [
        f"{path}.matchExpressions[{index}].key: {key} is deprecated since {since}; use {quote(name)} instead"
        for index, expression in enumerate(term.get("matchExpressions") or ())
        if (key := expression.get("key") or "") in RENAMED_LABELS
        for since, name in [RENAMED_LABELS[key]]
    ]

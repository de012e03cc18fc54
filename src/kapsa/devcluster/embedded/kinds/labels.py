"""Label selectors in their object form: `matchLabels` and `matchExpressions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a LabelSelector. None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    if not matches_map(selector.get("matchLabels"), labels):
        return False
    return all(_satisfies(expression, labels) for expression in selector.get("matchExpressions") or ())


def matches_map(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a map selector, the form of Services and ReplicationControllers."""
    return (selector or {}).items() <= labels.items()


def _satisfies(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or ()
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False

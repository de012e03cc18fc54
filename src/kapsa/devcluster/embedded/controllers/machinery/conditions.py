"""Status conditions as the built-in controllers keep them."""

from __future__ import annotations

from typing import Any

Condition = dict[str, Any]


def find(conditions: list[Condition] | None, type_: str) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((c for c in conditions or () if c["type"] == type_), None)


def is_true(conditions: list[Condition] | None, type_: str) -> bool:
    """Return whether a condition has the status "True"."""
    condition = find(conditions, type_)
    return condition is not None and condition["status"] == "True"


def without(conditions: list[Condition], type_: str) -> list[Condition]:
    """Return the conditions of all other types."""
    return [c for c in conditions if c["type"] != type_]


def put(conditions: list[Condition], condition: Condition) -> list[Condition]:
    """Return the conditions with one set, following the workload controllers.

    A condition with the same status and reason stays as it is. If only the reason differs, the transition
    time stays. A changed condition moves to the end of the list.
    """
    current = find(conditions, condition["type"])
    if current is not None and current["status"] == condition["status"]:
        if current.get("reason") == condition.get("reason"):
            return conditions
        condition = {**condition, "lastTransitionTime": current["lastTransitionTime"]}
    return [*without(conditions, condition["type"]), condition]

"""Status conditions as the built-in controllers keep them."""

from __future__ import annotations

from typing import Any

Condition = dict[str, Any]


def find(conditions: list[Condition] | None, type_: str) -> Condition | None:
    return next((c for c in conditions or () if c["type"] == type_), None)


def is_true(conditions: list[Condition] | None, type_: str) -> bool:
    found = find(conditions, type_)
    return found is not None and found["status"] == "True"


def without(conditions: list[Condition], type_: str) -> list[Condition]:
    return [c for c in conditions if c["type"] != type_]


def put(conditions: list[Condition], condition: Condition) -> list[Condition]:
    """Set a condition the way workload controllers do.

    Same status and reason: left alone, with its times. Same status, another reason: the transition time stays.
    A changed condition moves to the end, as the real controllers' does.
    """
    current = find(conditions, condition["type"])
    if current is not None and current["status"] == condition["status"]:
        if current.get("reason") == condition.get("reason"):
            return conditions
        condition = {**condition, "lastTransitionTime": current["lastTransitionTime"]}
    return [*without(conditions, condition["type"]), condition]

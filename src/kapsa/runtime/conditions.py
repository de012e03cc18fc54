"""Status conditions: what is true of a resource, since when, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

__all__ = ["Condition", "ConditionStatus", "condition_status", "with_condition"]

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One aspect of a resource's state, as `kubectl wait --for=condition=...` reads it."""

    type: Annotated[
        str,
        msgspec.Meta(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """The aspect in CamelCase, such as Ready."""
    status: ConditionStatus
    """True, False or Unknown."""
    last_transition_time: datetime
    """When the status last changed."""
    reason: Annotated[
        str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """Why, as one CamelCase word for programs."""
    message: Annotated[str, msgspec.Meta(max_length=32768)] = ""
    """Why, as a sentence for people."""
    observed_generation: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The generation of the spec that this condition is about."""


def condition_status(value: bool | ConditionStatus | None) -> ConditionStatus:
    """The wire form of True, False and None (unknown)."""
    if value is None:
        return "Unknown"
    if isinstance(value, bool):
        return "True" if value else "False"
    return value


def with_condition(conditions: Sequence[Condition], condition: Condition) -> list[Condition]:
    """`conditions` with one of them set; its transition time moves only when its status does."""
    result = list(conditions)
    for index, known in enumerate(result):
        if known.type == condition.type:
            if known.status == condition.status:
                condition = msgspec.structs.replace(
                    condition, last_transition_time=known.last_transition_time
                )
            result[index] = condition
            return result
    result.append(condition)
    return result

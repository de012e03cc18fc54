"""Status conditions: the state of a resource, one aspect each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

__all__ = ["Condition", "ConditionStatus", "condition_status", "with_condition"]

ConditionStatus = Literal["True", "False", "Unknown"]
"""The status of a condition."""

_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_LONGEST_REASON = 1024
_LONGEST_MESSAGE = 32768


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
    """The time at which the status last changed."""
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_REASON, pattern=_REASON)]
    """The reason as one CamelCase word, for programs."""
    message: Annotated[str, msgspec.Meta(max_length=_LONGEST_MESSAGE)] = ""
    """The reason as a sentence, for people."""
    observed_generation: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The generation of the spec that this condition describes."""


def condition_status(value: bool | ConditionStatus | None) -> ConditionStatus:
    """Return the wire form of True, False or None (unknown)."""
    if value is None:
        return "Unknown"
    if isinstance(value, bool):
        return "True" if value else "False"
    return value


def with_condition(conditions: Sequence[Condition], condition: Condition) -> list[Condition]:
    """Return `conditions` with one of them set; its transition time changes only if its status does.

    Raises ValueError for a reason that the API server would reject, and truncates a message that is too long.
    """
    if not re.fullmatch(_REASON, condition.reason) or len(condition.reason) > _LONGEST_REASON:
        raise ValueError(
            f"the reason of a condition must be a CamelCase word such as NotReady, got {condition.reason!r}"
        )
    if len(condition.message) > _LONGEST_MESSAGE:
        condition = msgspec.structs.replace(
            condition, message=condition.message[: _LONGEST_MESSAGE - 1] + "…"
        )
    result = list(conditions)
    for index, existing in enumerate(result):
        if existing.type == condition.type:
            if existing.status == condition.status:
                condition = msgspec.structs.replace(
                    condition, last_transition_time=existing.last_transition_time
                )
            result[index] = condition
            return result
    result.append(condition)
    return result

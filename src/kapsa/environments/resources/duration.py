"""Durations in the notation of Kubernetes: 90s, 168h, 1h30m."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from typing import Any, Self

__all__ = ["Duration"]

_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 20
"""The maximum length of the text. It bounds the cost of CEL rules over a duration."""
_CENTURY = 100 * 365.25 * 24 * 3600


@functools.total_ordering
class Duration:
    """A duration that keeps the text it was parsed from.

    >>> Duration("1h30m").seconds
    5400.0
    >>> Duration("60m") == Duration("1h")
    True
    """

    __slots__ = ("_text", "seconds")

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST or not re.fullmatch(_PATTERN, text):
            raise ValueError(f"{text[:40]!r} is not a duration; write for instance 90s, 30m, 168h or 1h30m")
        self._text = text
        self.seconds: float = sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text))

    @property
    def delta(self) -> timedelta:
        """The duration as a timedelta, at most a century."""
        return timedelta(seconds=min(self.seconds, _CENTURY))

    def __eq__(self, other: object) -> bool:
        return self.seconds == other.seconds if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: Duration) -> bool:
        return self.seconds < other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Duration({self._text!r})"

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Parse a value of a manifest."""
        if not isinstance(value, str):
            raise ValueError(f"expected a duration such as 300s or 168h, got {value!r}")  # noqa: TRY004 - msgspec reports ValueError with the field's path
        return cls(value)

    def to_wire(self) -> str:
        """Return the text as it was written."""
        return self._text

    @classmethod
    def openapi(cls) -> dict[str, Any]:
        """Return the schema for a CRD."""
        return {"type": "string", "pattern": _PATTERN, "maxLength": _LONGEST}

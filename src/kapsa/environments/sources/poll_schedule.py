"""The schedule of polls: at an interval with jitter, with back-off after errors, and sooner on request."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import msgspec

from kapsa.adapters.errors import ExternalError

__all__ = ["POLL_REQUESTED", "PollSchedule"]

POLL_REQUESTED = "catalyst.dev/poll-requested"
"""An annotation of a Project: a new value requests a poll now. Webhooks set it, and people can."""
_JITTER = 0.1
_FIRST_RETRY = 30.0
_LONGEST = 3600.0
_LEAST = 5.0
"""The least seconds between two polls, however many are requested."""


class _PollState(msgspec.Struct):
    """The result of a project's last poll."""

    at: datetime
    next_at: datetime
    inputs: tuple[str, ...]
    """The inputs of the poll: when they change, another poll is due."""
    failures: int = 0


class PollSchedule:
    """The next poll of each project. It is in memory only: after a restart every project is polled once."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._states: dict[str, _PollState] = {}

    def due_in(self, uid: str, inputs: tuple[str, ...], now: datetime) -> float:
        """Return the seconds until the next poll; 0 if it is due."""
        state = self._states.get(uid)
        if state is None:
            return 0.0
        due = state.next_at if state.inputs == inputs else state.at + timedelta(seconds=_LEAST)
        return max(0.0, (min(due, state.next_at) - now).total_seconds())

    def succeeded(self, uid: str, inputs: tuple[str, ...], now: datetime, interval: float) -> None:
        """Record a successful poll."""
        after = interval * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        self._states[uid] = _PollState(now, now + timedelta(seconds=after), inputs)

    def failed(
        self, uid: str, inputs: tuple[str, ...], now: datetime, interval: float, error: ExternalError
    ) -> None:
        """Record a failed poll: the delay until the next one grows with each failure."""
        before = self._states.get(uid)
        failures = before.failures + 1 if before is not None else 1
        after = min(_FIRST_RETRY * 2.0 ** min(failures - 1, 10), max(interval, _LONGEST))
        after = max(after * self._rng.uniform(1 - _JITTER, 1 + _JITTER), error.retry_after or 0.0)
        self._states[uid] = _PollState(now, now + timedelta(seconds=after), inputs, failures)

    def forget(self, uid: str) -> None:
        self._states.pop(uid, None)

"""Polling: when a project's repository is looked at next. Jittered, with back-off, and sooner when somebody asks for it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import msgspec

from kapsa.adapters.errors import ExternalError

__all__ = ["POLL_REQUESTED", "PollSchedule"]

POLL_REQUESTED = "catalyst.dev/poll-requested"
"""An annotation of a Project: another value than before asks for a poll now. Webhooks set it, and people can."""
_JITTER = 0.1
_FIRST_RETRY = 30.0
_LONGEST = 3600.0
_LEAST = 5.0
"""Seconds between two polls, however often somebody asks."""


class _PollState(msgspec.Struct):
    """What came of the last poll of a project."""

    at: datetime
    next_at: datetime
    asked: tuple[str, ...]
    """What the poll was made for: another is a reason for another poll."""
    failures: int = 0


class PollSchedule:
    """When each project is polled. It is memory only: after a restart every project is polled once."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._states: dict[str, _PollState] = {}

    def due_in(self, uid: str, asked: tuple[str, ...], now: datetime) -> float:
        """Seconds until the next poll; 0 if it is time."""
        state = self._states.get(uid)
        if state is None:
            return 0.0
        due = state.next_at if state.asked == asked else state.at + timedelta(seconds=_LEAST)
        return max(0.0, (min(due, state.next_at) - now).total_seconds())

    def succeeded(self, uid: str, asked: tuple[str, ...], now: datetime, interval: float) -> None:
        """A poll brought a listing."""
        after = interval * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        self._states[uid] = _PollState(now, now + timedelta(seconds=after), asked)

    def failed(
        self, uid: str, asked: tuple[str, ...], now: datetime, interval: float, error: ExternalError
    ) -> None:
        """A poll brought none: the next one comes soon at first, then later and later."""
        known = self._states.get(uid)
        failures = known.failures + 1 if known is not None else 1
        after = min(_FIRST_RETRY * 2.0 ** min(failures - 1, 10), max(interval, _LONGEST))
        after = max(after * self._rng.uniform(1 - _JITTER, 1 + _JITTER), error.retry_after or 0.0)
        self._states[uid] = _PollState(now, now + timedelta(seconds=after), asked, failures)

    def forget(self, uid: str) -> None:
        self._states.pop(uid, None)

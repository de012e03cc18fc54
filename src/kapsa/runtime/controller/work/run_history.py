"""The history of a controller: the last runs of each resource, and the last errors. Kept only for the debug endpoint."""

from __future__ import annotations

from collections import deque
from datetime import datetime

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.controller.work.workqueue import Item
from kapsa.runtime.resources.stored_object import Key

__all__ = ["RunError", "RunHistory", "RunRecord"]

_RUNS_OF_A_KEY = 10
_KEYS = 5000
"""Resources whose runs are kept; beyond it those are dropped that have not run for longest."""
_ERRORS = 100
_REASONS = 20
_LONGEST_TEXT = 1000
"""Characters of an error: a server's answer may hold a whole object."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one resource."""

    ended: datetime
    seconds: float
    result: str
    """success, requeue, conflict, error, timeout, terminal, refused or cancelled."""
    reasons: tuple[str, ...]
    waited: float
    """Seconds in the queue before it."""
    error: str = ""
    again_after: float | None = None
    """Seconds until the next run, as the resource requested."""


class RunError(msgspec.Struct, frozen=True):
    """An error of a run."""

    at: datetime
    key: str
    text: str


class RunHistory:
    """The last runs and errors of one controller, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[Key, deque[RunRecord]] = {}
        self._failed: dict[Key, str] = {}
        self.errors: deque[RunError] = deque(maxlen=_ERRORS)
        """The last errors, oldest first."""

    def runs(self, key: Key) -> list[RunRecord]:
        """Return the last runs of a resource, newest first."""
        return list(reversed(self._runs.get(key, ())))

    def last_error(self, key: Key) -> str:
        """Return the error of the last run of a resource; empty if it had none."""
        runs = self._runs.get(key)
        return runs[-1].error if runs else ""

    def fail(self, key: Key, error: BaseException) -> None:
        """Record the error of a run that is about to end."""
        text = f"{type(error).__name__}: {error}"[:_LONGEST_TEXT]
        self._failed[key] = text
        self.errors.append(RunError(self._clock.now(), str(key), text))

    def end(self, item: Item[Key], result: str, seconds: float, again_after: float | None = None) -> None:
        """Record the end of a run."""
        key = item.key
        record = RunRecord(
            ended=self._clock.now(),
            seconds=round(seconds, 6),
            result=result,
            reasons=tuple(str(reason) for reason in list(item.reasons)[:_REASONS]),
            waited=round(max(0.0, item.started_at - item.added_at), 6),
            error=self._failed.pop(key, ""),
            again_after=again_after,
        )
        runs = self._runs.pop(key, None)
        if runs is None:
            runs = deque(maxlen=_RUNS_OF_A_KEY)
        runs.append(record)
        self._runs[key] = runs  # at the end: the first one is the oldest
        if len(self._runs) > _KEYS:
            del self._runs[next(iter(self._runs))]

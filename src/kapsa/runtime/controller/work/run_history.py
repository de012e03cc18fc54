"""The history of controllers: the last runs of each resource, and the last errors. Kept only for the debug endpoint.

An operator has a controller for each cluster and shard, so the limits are those of the whole process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.controller.work.workqueue import Item
from kapsa.runtime.resources.stored_object import Key

__all__ = ["RunArchive", "RunError", "RunHistory", "RunRecord"]

_RUNS_OF_A_KEY = 10
_KEYS = 5000
"""Resources whose runs are kept, of all controllers; beyond it those are dropped that have not run for longest."""
_ERRORS = 100
"""Errors of one controller: one that always fails leaves room for others."""
_ALL_ERRORS = 2000
"""Errors of all controllers."""
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


class RunArchive:
    """The last runs and errors of all controllers of a process, in bounded memory."""

    def __init__(self) -> None:
        self._owners = 0
        self._runs: dict[tuple[int, Key], deque[RunRecord]] = {}
        """Those that have not run for longest first."""
        self._errors: dict[int, deque[RunError]] = {}
        """The oldest of each owner first."""

    def add_owner(self) -> int:
        """Return the number of another controller."""
        self._owners += 1
        return self._owners

    def runs(self, owner: int, key: Key) -> Sequence[RunRecord]:
        """Return the last runs of a resource, oldest first."""
        return self._runs.get((owner, key), ())

    def errors(self, owner: int) -> Sequence[RunError]:
        """Return the last errors of a controller, oldest first."""
        return self._errors.get(owner, ())

    def add_run(self, owner: int, key: Key, record: RunRecord) -> None:
        """Record a run of a resource."""
        runs = self._runs.pop((owner, key), None)
        if runs is None:
            runs = deque(maxlen=_RUNS_OF_A_KEY)
        runs.append(record)
        self._runs[owner, key] = runs  # at the end: the first one is the oldest
        if len(self._runs) > _KEYS:
            del self._runs[next(iter(self._runs))]

    def add_error(self, owner: int, error: RunError) -> None:
        """Record an error of a controller."""
        self._errors.setdefault(owner, deque(maxlen=_ERRORS)).append(error)
        if sum(map(len, self._errors.values())) > _ALL_ERRORS:
            oldest = min(self._errors, key=lambda each: self._errors[each][0].at)
            self._errors[oldest].popleft()
            if not self._errors[oldest]:
                del self._errors[oldest]


class RunHistory:
    """The last runs and errors of one controller, within the limits of the archive."""

    def __init__(self, archive: RunArchive, clock: Clock) -> None:
        self._archive = archive
        self._owner = archive.add_owner()
        self._clock = clock
        self._failed: dict[Key, str] = {}

    @property
    def errors(self) -> Sequence[RunError]:
        """The last errors, oldest first."""
        return self._archive.errors(self._owner)

    def runs(self, key: Key) -> list[RunRecord]:
        """Return the last runs of a resource, newest first."""
        return list(reversed(self._archive.runs(self._owner, key)))

    def last_error(self, key: Key) -> str:
        """Return the error of the last run of a resource; empty if it had none."""
        runs = self._archive.runs(self._owner, key)
        return runs[-1].error if runs else ""

    def fail(self, key: Key, error: BaseException) -> None:
        """Record the error of a run that is about to end."""
        text = f"{type(error).__name__}: {error}"[:_LONGEST_TEXT]
        self._failed[key] = text
        self._archive.add_error(self._owner, RunError(self._clock.now(), str(key), text))

    def end(self, item: Item[Key], result: str, seconds: float, again_after: float | None = None) -> None:
        """Record the end of a run."""
        record = RunRecord(
            ended=self._clock.now(),
            seconds=round(seconds, 6),
            result=result,
            reasons=tuple(str(reason) for reason in list(item.reasons)[:_REASONS]),
            waited=round(max(0.0, item.started_at - item.added_at), 6),
            error=self._failed.pop(item.key, ""),
            again_after=again_after,
        )
        self._archive.add_run(self._owner, item.key, record)

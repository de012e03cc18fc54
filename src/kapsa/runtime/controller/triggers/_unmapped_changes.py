"""Changes whose `map` raised: they are mapped again with back-off, so that none is lost.

A map may fail for a moment (it looks up an object that is not cached yet) or for good (it has a bug, or a tenant
wrote a value it does not expect). After a few attempts, or when too many changes wait, all resources of the
controller run instead: that needs no map, and misses no resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kapsa.runtime.controller.work.workqueue import Backoff

__all__ = ["UnmappedChanges"]

ATTEMPTS = 8
"""The number of attempts to map one change."""
LIMIT = 1000
"""The number of changes that may wait. Running everything covers any number of them."""
_BACKOFF = Backoff(initial=0.1, max=60.0)

Attempt = Callable[[], bool]
"""A callback that maps a change again and reports whether it succeeded."""


class UnmappedChanges:
    """The changes of one controller that wait to be mapped again."""

    def __init__(self, run_all: Callable[[], None]) -> None:
        self._run_all = run_all
        self._waiting: list[tuple[Attempt, int]] = []
        self._overflow = False
        self._passes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, attempt: Attempt) -> None:
        """Try a change again later."""
        self._keep(attempt, 1)
        self._arm()

    def clear(self) -> None:
        """Discard all changes: the next start of the controller begins with all resources."""
        self._waiting.clear()
        self._overflow = False
        self._passes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep(self, attempt: Attempt, attempts: int) -> None:
        if attempts >= ATTEMPTS or len(self._waiting) >= LIMIT:
            self._overflow = True
        else:
            self._waiting.append((attempt, attempts))

    def _arm(self) -> None:
        if self._timer is None and (self._waiting or self._overflow):
            self._passes += 1
            delay = _BACKOFF.delay(self._passes)
            self._timer = asyncio.get_running_loop().call_later(delay, self._try_all)

    def _try_all(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        overflow, self._overflow = self._overflow, False
        for attempt, attempts in waiting:
            if not attempt():
                self._keep(attempt, attempts + 1)
        if overflow:
            self._run_all()
        if not self._waiting and not self._overflow:
            self._passes = 0
        self._arm()

"""A watchdog for the event loop: a thread that reports a blocked loop together with the stack that blocks it.

A blocked loop renews no lease and answers no probe, so the process loses both without further help. It cannot
report the reason; this module does.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable

import structlog

__all__ = ["LoopWatch"]

_log = structlog.get_logger(__name__)


class LoopWatch:
    """A heartbeat in the event loop, observed from a thread."""

    def __init__(
        self,
        *,
        limit: float = 2.0,
        interval: float = 0.25,
        on_lag: Callable[[float], None] = lambda lag: None,
        on_blocked: Callable[[str], None] = lambda stack: None,
    ) -> None:
        self.limit = limit
        """Seconds without a beat after which the loop counts as blocked."""
        self.lag = 0.0
        """Seconds by which the last beat was late."""
        self.blocked = False
        self.last_stack = ""
        """The stack that blocked the loop the last time."""
        self._interval = interval
        self._on_lag = on_lag
        self._on_blocked = on_blocked
        self._last_beat = time.monotonic()
        self._loop_thread = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching the running loop."""
        self._loop_thread = threading.get_ident()
        self._last_beat = time.monotonic()
        self._beating = asyncio.create_task(self._beat(), name="loop watch")
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 1.0)

    @property
    def stalled(self) -> float:
        """Seconds since the last beat was due."""
        return max(0.0, time.monotonic() - self._last_beat - self._interval)

    async def _beat(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._interval)
            now = time.monotonic()
            self.lag = max(0.0, now - before - self._interval)
            self._on_lag(self.lag)
            self._last_beat = now

    def _look(self) -> None:
        while not self._stopped.wait(self._interval):
            stalled = self.stalled
            if stalled < self.limit:
                if self.blocked:
                    self.blocked = False
                    _log.warning("event loop unblocked", blocked_seconds=round(self.lag, 1))
                continue
            if not self.blocked:
                self.blocked = True
                self.last_stack = self._stack()
                _log.error("event loop blocked", seconds=round(stalled, 1), stack=self.last_stack)
                self._on_blocked(self.last_stack)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to see another thread
        return (
            "".join(traceback.format_stack(frame))
            if frame is not None
            else "(the thread of the loop has ended)"
        )

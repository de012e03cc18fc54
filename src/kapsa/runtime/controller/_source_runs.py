"""The event sources of one controller at work: each runs once, for all shards of the controller in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.clock import Clock
from kapsa.runtime.controller.sources import EventSource, Wake
from kapsa.runtime.controller.work.workqueue import Backoff

__all__ = ["SourceRuns"]

_log = structlog.get_logger(__name__)

_BACKOFF = Backoff(initial=1.0, max=60.0)
"""The wait before an event source that failed is started again."""


class SourceRuns:
    """Sources that run while at least one listener is there."""

    def __init__(self, controller: str, sources: Sequence[EventSource], clock: Clock) -> None:
        self._controller = controller
        self._sources = sources
        self._clock = clock
        self._listeners: list[Wake] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, listener: Wake) -> None:
        """Pass events on to a listener. The first one starts the sources."""
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            self._tasks = [
                asyncio.create_task(self._keep(source), name=f"{self._controller} source")
                for source in self._sources
            ]

    def remove(self, listener: Wake) -> None:
        """Pass no more events on to a listener. The last one ends the sources."""
        self._listeners.remove(listener)
        if not self._listeners:
            for task in self._tasks:
                task.cancel()
            self._tasks = []

    def _wake(self, namespace: str, name: str) -> None:
        for listener in tuple(self._listeners):
            listener(namespace, name)

    async def _keep(self, source: EventSource) -> None:
        """Run a source of events, again after a failure: whatever it does, the controller goes on."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await await_user_code(source.run(self._wake, self._clock))
                _log.error(
                    "event source ended, it is started again",
                    controller=self._controller,
                    source=repr(source),
                )
            except Exception:
                _log.exception("event source failed", controller=self._controller, source=repr(source))
            healthy = self._clock.monotonic() - began > _BACKOFF.max
            failures = 1 if healthy else failures + 1
            await self._clock.sleep(_BACKOFF.delay(failures))

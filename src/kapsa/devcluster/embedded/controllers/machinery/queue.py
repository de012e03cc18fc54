"""Work queues: each key once, one at a time, retried with back-off, no task while there is nothing to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""

_FIRST_RETRY = 0.005
_LONGEST_RETRY = 60.0


class Retry(Exception):  # noqa: N818  it asks for something, it does not report a fault
    """Raised by a worker whose view of the world was overtaken: try again, nothing to log."""


class KeyQueue:
    """Runs a worker for every key that is added.

    A task exists only while keys wait, and a timer only while a delayed key does: an idle queue costs nothing.
    """

    def __init__(self, name: str, worker: Callable[[Key], Awaitable[None]]) -> None:
        self.name = name
        self._worker = worker
        self._waiting: dict[Key, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits; delayed keys do not count."""
        return self._task is None

    def add(self, key: Key) -> None:
        """Run the worker for this key soon. A key that already waits is not run twice."""
        if self._stopped:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._waiting[key] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain(), name=f"controller {self.name}")

    def add_after(self, key: Key, seconds: float) -> None:
        """Run the worker for this key after a while, or earlier when something adds it earlier."""
        if self._stopped or key in self._waiting:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def stop(self) -> None:
        """Stop the work under way and forget the rest."""
        self._stopped = True
        self._waiting.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                await self._run(key)
        finally:
            self._task = None

    async def _run(self, key: Key) -> None:
        try:
            await self._worker(key)
        except Retry:
            self._retry(key)
        except Exception:
            log.exception("controller %s failed on %s; it is retried", self.name, "/".join(filter(None, key)))
            self._retry(key)
        else:
            self._failures.pop(key, None)

    def _retry(self, key: Key) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(_FIRST_RETRY * 2 ** (failures - 1), _LONGEST_RETRY))


def key_of(obj: dict[str, Any]) -> Key:
    """Return the key of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

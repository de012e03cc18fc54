"""Work queues of keys: deduplicated, processed one at a time, retried with back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kapsa.devcluster.log import log_exception

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""

_FIRST_RETRY = 0.005
_LONGEST_RETRY = 60.0
_SLICE = 8
"""Keys that run before requests and other controllers get a turn."""


class Retry(Exception):  # noqa: N818  it is a request, not an error
    """Raised by a worker whose objects were stale: the key is retried and nothing is logged."""


class KeyQueue:
    """A queue that runs a worker for each key.

    A task exists only while keys are waiting, and a timer only while a key is delayed: an idle queue costs
    nothing.
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
        """True if no key is running or waiting. Delayed keys do not count."""
        return self._task is None

    def add(self, key: Key) -> None:
        """Enqueue a key. A key that is already waiting runs once."""
        if self._stopped:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._waiting[key] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain(), name=f"controller {self.name}")

    def add_after(self, key: Key, seconds: float) -> None:
        """Enqueue a key after a delay, unless it is added or due earlier."""
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
        """Cancel the running worker and drop all keys."""
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
            runs = 0
            while self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                await self._run(key)
                runs += 1
                if runs % _SLICE == 0:
                    # Writes within this process never wait, so nothing else would run until the queue is empty.
                    await asyncio.sleep(0)
        finally:
            self._task = None

    async def _run(self, key: Key) -> None:
        try:
            await self._worker(key)
        except Retry:
            self._retry(key)
        except Exception as error:
            name = "/".join(filter(None, key))
            log_exception(
                "controller failed on an object, retrying", error, controller=self.name, object=name
            )
            self._retry(key)
        else:
            self._failures.pop(key, None)

    def _retry(self, key: Key) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(_FIRST_RETRY * 2 ** (failures - 1), _LONGEST_RETRY))


def key_of(obj: dict[str, Any]) -> Key:
    """Return the key of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

"""Sources of events outside the cluster: they wake resources, which then run as after any change.

A source runs while its controller works. What it misses while another process leads is not lost: a controller
that starts begins with all resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.resources.stored_object import Key

__all__ = ["Channel", "EventSource", "Polling", "Wake"]

Wake: TypeAlias = Callable[[str, str], None]
"""Runs a resource, by namespace ("" if it is cluster-scoped) and name. One that does not exist is ignored."""


class EventSource(Protocol):
    """An origin of events outside the cluster."""

    async def run(self, wake: Wake, clock: Clock) -> None:
        """Call `wake` for each event until cancelled. If it raises or returns, it is started again with back-off."""


class Channel:
    """A channel through which other code wakes resources: an inbound webhook, a consumer of a queue."""

    def __init__(self) -> None:
        self._listeners: list[Wake] = []

    def wake(self, namespace: str, name: str) -> None:
        """Run a resource of each controller that has this channel, if it works in this process."""
        for listener in self._listeners:
            listener(namespace, name)

    async def run(self, wake: Wake, clock: Clock) -> None:
        """Pass events on until cancelled."""
        self._listeners.append(wake)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._listeners.remove(wake)


class Polling(msgspec.Struct, frozen=True):
    """A function, called at intervals, that wakes the resources it returns, as (namespace, name)."""

    keys: Callable[[], Awaitable[Iterable[Key | tuple[str, str]]]]
    every: float
    """Seconds between the end of one call and the next."""

    def __post_init__(self) -> None:
        if self.every <= 0:
            raise ValueError(f"the interval of a Polling must be positive, got {self.every}")

    async def run(self, wake: Wake, clock: Clock) -> None:
        """Poll until cancelled."""
        while True:
            for namespace, name in await self.keys():
                wake(namespace, name)
            await clock.sleep(self.every)

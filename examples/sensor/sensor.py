"""A daemon: a sensor follows a stream as long as it exists, and shows the last message in its status.

An event source of the controller holds one connection for each resource. Run it with `kapsa run sensor:operator`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from kapsa.runtime import Clock, Context, Controller, CustomResource, Field, Key, Operator, Spec, Status, Wake

Subscribe = Callable[[str], AsyncIterator[str]]
"""Opens the stream of a topic."""


class Subscriptions:
    """An event source that follows one stream for each resource, and wakes it for every message."""

    def __init__(self, subscribe: Subscribe) -> None:
        self.latest: dict[Key, str] = {}
        self._subscribe = subscribe
        self._topics: dict[Key, str] = {}
        self._changed = asyncio.Event()

    def follow(self, key: Key, topic: str) -> None:
        """Follow a topic for a resource, and no longer the one before."""
        if self._topics.get(key) != topic:
            self._topics[key] = topic
            self._changed.set()

    def leave(self, key: Key) -> None:
        """Follow nothing for a resource."""
        self._topics.pop(key, None)
        self.latest.pop(key, None)
        self._changed.set()

    async def run(self, wake: Wake, clock: Clock) -> None:
        tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                for gone in tasks.keys() - self._topics.items():
                    tasks.pop(gone).cancel()
                for new in self._topics.items() - tasks.keys():
                    tasks[new] = asyncio.create_task(self._keep(*new, wake, clock))
                await self._changed.wait()
        finally:
            for task in tasks.values():
                task.cancel()
            self._topics.clear()

    async def _keep(self, key: Key, topic: str, wake: Wake, clock: Clock) -> None:
        while True:
            try:
                async for message in self._subscribe(topic):
                    self.latest[key] = message
                    wake(key.namespace, key.name)
            except (OSError, ValueError):
                pass  # the stream broke, or sent a line that is too long: open it again
            await clock.sleep(5)


class SensorSpec(Spec):
    topic: Annotated[str, Field(pattern=r"^[a-z0-9]+(/[a-z0-9]+)*$")]
    """Such as cellar/temperature."""


class SensorStatus(Status):
    reading: str | None = None
    """The last message."""


class Sensor(CustomResource[SensorSpec, SensorStatus], group="example.com", version="v1"):
    """The last message of a topic, in a status."""


class SensorController(Controller[Sensor]):
    def __init__(self, subscribe: Subscribe) -> None:
        super().__init__()
        self.subscriptions = Subscriptions(subscribe)
        self.sources = (self.subscriptions,)

    async def reconcile(self, sensor: Sensor, ctx: Context[Sensor]) -> None:
        self.subscriptions.follow(ctx.key, sensor.spec.topic)
        if ctx.key in self.subscriptions.latest:
            ctx.status.reading = self.subscriptions.latest[ctx.key]

    async def finalize(self, sensor: Sensor, ctx: Context[Sensor]) -> None:
        self.subscriptions.leave(ctx.key)


async def subscribe(topic: str) -> AsyncIterator[str]:
    """Yield the messages of a topic: a line asks the broker for it, and each line of the answer is a message."""
    host, _, port = os.environ.get("BROKER", "broker:9000").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{topic}\n".encode())
        while line := await reader.readline():
            yield line.decode(errors="replace").rstrip()
    finally:
        writer.close()


operator = Operator(controllers=[SensorController(subscribe)], leader_election="sensor-operator")

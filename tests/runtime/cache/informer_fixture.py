"""An informer of labelled ConfigMaps on a devcluster, with a transport that records its requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from kapsa.devcluster import DevCluster
from kapsa.runtime import Change, Client, GroupVersionKind, Informer
from kapsa.runtime.cache.informer import WatchScope
from kapsa.runtime.client.http.transport import StreamResponse
from kapsa.runtime.testing import Harness, InProcessTransport
from tests.runtime.sample_app import config_map

__all__ = ["CONFIG_MAP", "InformerFixture"]

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
SCOPE = WatchScope(CONFIG_MAP, "default", labels="test")
Moment = Literal["list", "part", "end"]


class RecordingTransport(InProcessTransport):
    """A transport that records the query of each request and the time of each watch."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness.cluster, client="informer", latency=0.001)
        self.clock = harness.clock
        self.times: list[float] = []
        self.watches: list[Mapping[str, str]] = []
        self.lists: list[Mapping[str, str]] = []
        self.newest: int | None = None
        self.on_delivery: Callable[[Moment], None] = lambda moment: None
        """Called in the turn of the event loop in which the informer gets a list, a part of a stream or its end."""

    def restore(self, cluster: DevCluster, *, newest: int | None = None) -> None:
        """Carry requests to another cluster, which has the state of a backup.

        A watch that begins after the version `newest` is silent, as that of kube-apiserver is.
        """
        self._cluster, self.newest = cluster, newest

    async def request(self, method: str, path: str, *, query: Any = (), **more: Any) -> Any:
        if path.endswith("/configmaps"):
            self.lists.append(dict(query))
        response = await super().request(method, path, query=query, **more)
        if path.endswith("/configmaps"):
            self.on_delivery("list")
        return response

    @asynccontextmanager
    async def stream(self, method: str, path: str, *, query: Any = (), **more: Any) -> AsyncIterator[Any]:
        self.watches.append(dict(query))
        self.times.append(self.clock.monotonic())
        if self.newest is not None and int(dict(query).get("resourceVersion", 0)) > self.newest:
            yield _SilentStream()
            return
        async with super().stream(method, path, query=query, **more) as response:
            yield _ObservedStream(response, self)


class _SilentStream:
    """A response that begins, and to which nothing is added."""

    status = 200
    headers: Mapping[str, str] = {}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


class _ObservedStream:
    """A streamed response that reports its parts and its end as they are delivered."""

    def __init__(self, response: StreamResponse, transport: RecordingTransport) -> None:
        self.status, self.headers = response.status, response.headers
        self._response = response
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response:
            self._transport.on_delivery("part")
            yield chunk
        self._transport.on_delivery("end")


class InformerFixture:
    """An informer of labelled ConfigMaps and the changes it delivered."""

    def __init__(self, harness: Harness, *, scope: WatchScope = SCOPE, seed: int = 1) -> None:
        self.harness = harness
        self.transport = RecordingTransport(harness)
        self.client = Client(self.transport, clock=harness.clock)
        self.informer = Informer(self.client, scope, rng=random.Random(seed))
        self.delivered: list[str] = []
        self.informer.add_handler(self._record)

    def _record(self, change: Change) -> None:
        self.delivered.append(f"{change.event} {change.object.name}")

    async def start(self) -> None:
        self.informer.start()
        await self.informer.synced.wait()

    async def make(self, *names: str) -> None:
        for name in names:
            made = config_map(name, labels={"test": "1"}, namespace="default")
            await self.harness.client.create(made)

    async def drop(self, name: str) -> None:
        await self.harness.client.delete("v1/ConfigMap", name, namespace="default")

    async def change(self, name: str, value: str) -> None:
        await self.harness.client.patch("v1/ConfigMap", name, {"data": {"image": value}}, namespace="default")

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.informer.store)

    async def wait(self, seconds: float = 1.0) -> None:
        await self.harness.clock.sleep(seconds)

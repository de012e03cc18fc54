"""Fills a manager through its API: clusters, operators with their versions, and the releases on each cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bench.console import say
from bench.fleet.calls import FleetCalls
from bench.fleet.charts import FIRST_VERSION, UPGRADES
from bench.fleet.cluster_process import ServedCluster
from bench.fleet.latencies import percentile
from bench.fleet.size import FleetSize, operator_name
from kapsa.fleet.orchestrator.ports.requests.rate_limits import CREATE_CLUSTER, WRITES

_AT_ONCE = 4
_SAY_SECONDS = 20.0

Call = tuple[str, str, object]
"""The person, the path and the body of a request."""


class SetupFailed(RuntimeError):  # noqa: N818 - named as what happened
    """A step of the preparation did not finish."""


class Registration:
    """The preparation of one manager."""

    def __init__(self, calls: FleetCalls, size: FleetSize) -> None:
        self._calls = calls
        self._size = size

    async def run(self, clusters: Sequence[ServedCluster], repository: str) -> dict[str, float]:
        """Register everything, and return how long each request took in the median."""
        return {
            **await self._step("clusters registered", cluster_requests(clusters)),
            **await self._step("operators registered", operator_requests(self._size, repository)),
            **await self._step("versions registered", version_requests(self._size)),
            **await self._step("releases adopted", adoption_requests(self._size, clusters)),
        }

    async def _step(self, name: str, requests: Sequence[Call]) -> dict[str, float]:
        """Send requests, a few at a time, each of which must succeed within the limit of a step."""
        seconds: list[float] = []

        async def send(call: Call) -> None:
            person, path, body = call
            seconds.append((await self._calls.timed("POST", person, path, body))[1])

        started = time.monotonic()
        try:
            async with asyncio.timeout(self._size.limit_seconds):
                await in_parallel(requests, send, lambda done: say(f"  {done} of {len(requests)} {name}"))
        except TimeoutError:
            raise SetupFailed(
                f"only {len(seconds)} of {len(requests)} {name} after {self._size.limit_seconds:.0f} s"
            ) from None
        say(f"  {len(requests)} {name} in {time.monotonic() - started:.0f} s")
        return {f"setup: {name}, ms p50": percentile(seconds, 50) * 1000}


async def in_parallel(
    requests: Sequence[Call], send: Callable[[Call], Awaitable[None]], progress: Callable[[int], None]
) -> None:
    """Send all requests, `_AT_ONCE` at a time, and report the progress now and then. The first failure ends it."""
    left = iter(requests)
    done, reported = 0, time.monotonic()

    async def work() -> None:
        nonlocal done, reported
        for call in left:
            await send(call)
            done += 1
            if time.monotonic() - reported > _SAY_SECONDS:
                reported = time.monotonic()
                progress(done)

    tasks = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def cluster_requests(clusters: Sequence[ServedCluster]) -> list[Call]:
    """Return the registrations of clusters, by as many people as the rate limit needs."""
    return [
        (
            f"registrar-{number // CREATE_CLUSTER.requests}",
            "/clusters",
            {"name": each.name, "environment": "Dev", "kubeconfig": each.kubeconfig},
        )
        for number, each in enumerate(clusters)
    ]


def operator_requests(size: FleetSize, repository: str) -> list[Call]:
    """Return the registrations of operators, each with its first version."""
    names = map(operator_name, range(size.operators))
    return _shared([("/operators", operator_body(name, repository)) for name in names], "developer")


def version_requests(size: FleetSize) -> list[Call]:
    """Return the registrations of the versions to upgrade to."""
    requests: list[tuple[str, object]] = [
        (f"/operators/{operator_name(number)}/versions", {"version": version})
        for version in UPGRADES
        for number in range(size.installed)
    ]
    return _shared(requests, "releaser")


def operator_body(name: str, repository: str) -> dict[str, object]:
    source = {"type": "http", "repository": repository, "chart": name}
    return {"name": name, "namespace": name, "source": source, "version": FIRST_VERSION}


def adoption_requests(size: FleetSize, clusters: Sequence[ServedCluster]) -> list[Call]:
    """Return the adoptions of all releases."""
    requests: list[tuple[str, object]] = [
        (f"/clusters/{cluster.name}/adopt", {"operator": operator_name(number)})
        for cluster in clusters
        for number in range(size.installed)
    ]
    return _shared(requests, "adopter")


def _shared(requests: Sequence[tuple[str, object]], role: str) -> list[Call]:
    """Return requests with the people who make them: nobody makes more than the manager accepts."""
    return [
        (f"{role}-{number // WRITES.requests}", path, body) for number, (path, body) in enumerate(requests)
    ]


class _OnCluster(msgspec.Struct, frozen=True, rename="camel"):
    cluster_name: str
    health: str
    reason: str = ""
    message: str = ""


class _Report(msgspec.Struct, frozen=True):
    clusters: list[_OnCluster]


async def until_healthy(calls: FleetCalls, size: FleetSize) -> None:
    """Wait until a health check has seen every operator healthy on every cluster.

    Raises SetupFailed with the first that is not.
    """
    deadline = time.monotonic() + size.limit_seconds
    for number in range(size.installed):
        name = operator_name(number)
        while (doubt := await _doubt(calls, name, size.clusters)) is not None:
            if time.monotonic() > deadline:
                raise SetupFailed(f"{doubt}, {size.limit_seconds:.0f} s after the registration")
            await asyncio.sleep(1)


async def _doubt(calls: FleetCalls, name: str, clusters: int) -> str | None:
    report = msgspec.convert(await calls.get("observer", f"/operators/{name}/health"), _Report)
    for each in report.clusters:
        if each.health != "Healthy":
            return f"{name} is {each.health} on {each.cluster_name}: {each.reason} {each.message}".rstrip()
    if len(report.clusters) < clusters:
        return f"{name} is installed on {len(report.clusters)} of {clusters} clusters"
    return None

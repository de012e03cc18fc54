"""The measurement of managers: one replica and then three, on the same clusters, at rest and under load.

The managers, their PostgreSQL, the clusters, the charts and webhooks, and the clients are processes of their own, on
one machine. Everything is registered through the API, and the clusters have the releases before: installing them by
Helm would take half an hour. The load is what a busy team does: deployments under way all the time, and clients that
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.console import say
from bench.fleet.calls import FleetCalls
from bench.fleet.charts import UPGRADES, WebhookAddress
from bench.fleet.child_process import child_process
from bench.fleet.cluster_process import ServedCluster
from bench.fleet.latencies import (
    MetricsReading,
    added,
    difference,
    histogram_percentiles,
    percentiles,
)
from bench.fleet.limits import (
    BUSIEST,
    CLUSTER_CONNECTIONS,
    DATABASE_CONNECTIONS,
    FAILED_DEPLOYMENTS,
    FAILED_REQUESTS,
    MEMORY,
    ONE,
    REST,
    THREE,
)
from bench.fleet.load_process import LoadOrder, LoadReport
from bench.fleet.managers import Managers
from bench.fleet.registration import Registration, until_healthy
from bench.fleet.repository_process import RepositoryAddresses
from bench.fleet.size import FleetSize
from bench.scenarios.operators import STOLEN, HostSteal

CLUSTERS_OF_A_PROCESS = 25
REPLICAS = {ONE: 1, THREE: 3}
_START_SECONDS = 120.0
_SAY_SECONDS = 20.0
_REASONS = 3
_CHECKS = {
    "pod check": "Pods",
    "webhook check": "Webhooks",
    "CRD reconciliation check": "Resources",
    "full operator check": "All",
}
"""The health checks of the specification, by the names that the metrics of a manager have for them."""
_CHECK_SECONDS, _HELM_SECONDS = "operator_healthcheck_duration_seconds", "helm_install_duration_seconds"


async def measure_fleet(
    size: FleetSize, directory: Path, replicas: Mapping[str, int] = REPLICAS
) -> AsyncGenerator[tuple[str, dict[str, float]], None]:
    """Measure some numbers of replicas, in rising order, on the same clusters, and yield each as soon as it is done.

    Logs are left in the directory, and nothing elsewhere.
    """
    async with contextlib.AsyncExitStack() as stack:
        # Not inside the directory of the run: as root, PostgreSQL runs as another user, who must pass through.
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kapsa-fleet-")))
        own.chmod(0o711)
        addresses = await stack.enter_async_context(_repository(size, directory))
        clusters = await stack.enter_async_context(_clusters(size, addresses.webhook, directory))
        say(f"  {len(clusters)} clusters run {size.installed} operators each")
        managers = await stack.enter_async_context(Managers.on_database(own, directory, size.check_seconds))
        await stack.enter_async_context(managers.blamed())
        measurement = FleetMeasurement(size, managers, clusters, directory)
        repository = addresses.repository
        for (peer, count), version in zip(replicas.items(), UPGRADES[: len(replicas)], strict=True):
            await managers.start(count)
            setup = await measurement.prepare(repository)
            repository = ""
            say(f"  {peer}: at rest for {size.rest_seconds:.0f} s")
            rest = await measurement.rest()
            load = await measurement.load(peer, version)
            yield peer, {**load, **rest, **setup}


@contextlib.asynccontextmanager
async def _repository(size: FleetSize, directory: Path) -> AsyncIterator[RepositoryAddresses]:
    log = directory / "fleet-repository.log"
    module = "bench.fleet.repository_process"
    async with child_process(module, size.operators, size.installed, log=log) as process:
        yield await process.report(RepositoryAddresses, _START_SECONDS)


@contextlib.asynccontextmanager
async def _clusters(
    size: FleetSize, webhook: WebhookAddress, directory: Path
) -> AsyncIterator[list[ServedCluster]]:
    """Start the clusters, a few processes side by side."""
    address = msgspec.json.encode(webhook).decode()
    async with contextlib.AsyncExitStack() as stack:
        started = []
        for first in range(0, size.clusters, CLUSTERS_OF_A_PROCESS):
            count = min(CLUSTERS_OF_A_PROCESS, size.clusters - first)
            log = directory / f"fleet-clusters-{first}.log"
            process = child_process(
                "bench.fleet.cluster_process", first, count, size.installed, address, log=log
            )
            started.append(await stack.enter_async_context(process))
        reports = await asyncio.gather(
            *(each.report(list[ServedCluster], size.limit_seconds) for each in started)
        )
        yield [cluster for report in reports for cluster in report]


class FleetMeasurement:
    """Measurements of the replicas that run."""

    def __init__(
        self, size: FleetSize, managers: Managers, clusters: Sequence[ServedCluster], directory: Path
    ) -> None:
        self._size = size
        self._managers = managers
        self._clusters = clusters
        self._directory = directory

    async def prepare(self, repository: str) -> dict[str, float]:
        """Register everything if there is a repository, and wait until all operators are seen healthy."""
        async with self._calls() as calls:
            setup = (
                await Registration(calls, self._size).run(self._clusters, repository) if repository else {}
            )
            await until_healthy(calls, self._size)
        return setup

    async def rest(self) -> dict[str, float]:
        """Measure the CPU while there is nothing to do but health checks."""
        before, started = sum(self._managers.cpu_seconds()), time.monotonic()
        await asyncio.sleep(self._size.rest_seconds)
        spent = sum(self._managers.cpu_seconds()) - before
        return {REST: spent / (time.monotonic() - started) * 100}

    async def load(self, peer: str, version: str) -> dict[str, float]:
        """Run the clients, and measure requests, deployments, health checks and what the replicas use."""
        ports = {each.port for each in self._clusters}
        async with self._calls() as calls, self._managers.sampled(ports) as peaks:
            before = await self._read(calls)
            cpu, helm = self._managers.cpu_seconds(), self._managers.helm_seconds()
            started, steal = time.monotonic(), HostSteal()
            report = await self._clients(peer, version)
            seconds, stolen = time.monotonic() - started, steal.percent
            after = await self._read(calls)
            spent = [end - begin for begin, end in zip(cpu, self._managers.cpu_seconds(), strict=True)]
            spent_by_helm = self._managers.helm_seconds() - helm
        assert report.durations is not None
        return {
            **durations(report.durations),
            **health_checks(before, after),
            BUSIEST: max(spent) / seconds * 100,
            "under load: % of a core, all Helm processes": spent_by_helm / seconds * 100,
            "under load: % of a core, the clients": report.cpu_seconds / seconds * 100,
            STOLEN: stolen,
            MEMORY: peaks.memory_mb,
            CLUSTER_CONNECTIONS: peaks.cluster_connections,
            DATABASE_CONNECTIONS: peaks.database_connections / len(spent),
            FAILED_REQUESTS: len(report.failed_requests),
            FAILED_DEPLOYMENTS: len(report.failed_deployments),
            **shares(before, after),
        }

    def _calls(self) -> contextlib.AbstractAsyncContextManager[FleetCalls]:
        return FleetCalls.connected(self._managers.urls, self._managers.data_directory)

    async def _read(self, calls: FleetCalls) -> list[MetricsReading]:
        return [MetricsReading(await calls.metrics(url, "observer")) for url in self._managers.urls]

    async def _clients(self, peer: str, version: str) -> LoadReport:
        """Run the clients to their end, and report their progress."""
        order = LoadOrder(
            urls=self._managers.urls,
            data_directory=str(self._managers.data_directory),
            size=self._size,
            version=version,
        )
        path = self._directory / "fleet-order.json"
        path.write_bytes(msgspec.json.encode(order))
        log = self._directory / f"fleet-load-{version}.log"
        said = time.monotonic()
        async with child_process("bench.fleet.load_process", path, log=log) as process:
            while True:
                report = await process.report(LoadReport, _START_SECONDS)
                self._managers.check()
                if report.durations is not None:
                    return _reported(report, peer)
                if time.monotonic() - said > _SAY_SECONDS:
                    said = time.monotonic()
                    say(f"  {peer}: {report.progress}")


def _reported(report: LoadReport, peer: str) -> LoadReport:
    """Print how many requests and deployments failed, and the first reasons."""
    for kind, reasons in (("requests", report.failed_requests), ("deployments", report.failed_deployments)):
        if reasons:
            first = "".join(f"\n    {reason}" for reason in reasons[:_REASONS])
            say(f"  {peer}: {len(reasons)} {kind} failed, the first:{first}")
    return report


def durations(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the percentiles of requests in milliseconds and of deployments in seconds, each with their number."""
    values: dict[str, float] = {}
    for name, each in sorted(seconds.items()):
        unit, factor = ("ms", 1000.0) if "/" in name else ("s", 1.0)
        values |= {**percentiles(f"{name} {unit}", each, factor=factor), f"{name}, number": len(each)}
    return values


def health_checks(before: Sequence[MetricsReading], after: Sequence[MetricsReading]) -> dict[str, float]:
    """Return the percentiles of the health checks of all replicas, from the histograms that they export."""
    values: dict[str, float] = {}
    for name, check in _CHECKS.items():
        gained = added(
            difference(late.buckets(_CHECK_SECONDS, check=check), early.buckets(_CHECK_SECONDS, check=check))
            for early, late in zip(before, after, strict=True)
        )
        values |= histogram_percentiles(f"{name} ms", gained, factor=1000)
    return values


def shares(before: Sequence[MetricsReading], after: Sequence[MetricsReading]) -> dict[str, float]:
    """Return the work of the replica that did least, in percent of all work; nothing for a single replica."""
    if len(after) < 2:
        return {}
    counted = {
        "health checks": (f"{_CHECK_SECONDS}_count", {"check": "All"}),
        "Helm runs": (f"{_HELM_SECONDS}_count", {}),
    }
    values = {}
    for name, (metric, labels) in counted.items():
        done = [
            late.total(metric, **labels) - early.total(metric, **labels)
            for early, late in zip(before, after, strict=True)
        ]
        values[f"{name} of the least busy replica %"] = min(done) / (sum(done) or 1) * 100
    return values

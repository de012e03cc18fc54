"""Operators under load: from the start of the operator until all resources are done, then single changes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.console import say
from bench.measured_plane import SAMPLES, MeasuredPlane
from bench.planes import control_plane, samples
from bench.processes import running, stolen_seconds, usage
from bench.programs import Command, peer_command
from bench.results import Measurement
from bench.scenarios import Extra, Scenario
from kapsa.runtime import Bookmark, HttpTransport, WatchOptions, load_config

Values = dict[str, float]

PEERS = ("kapsa", "controller-runtime", "kube-rs", "kopf")
JUDGED = 2000
"""The size of the targets."""
SLOW = 8000
"""The size at which kopf takes minutes with children, so that it runs last."""
SMALL = 500
OTHER_WAYS = ("controller-runtime, apply", "kopf, blind")
"""Measured once, at the smallest size: the cost of server-side apply in controller-runtime, and the gain of
kopf without a watch on the children."""
CHANGES = 100
"""The number of single changes, for the time from a write to the reconciled status."""
BARE = "bare load generator"
DISTURBED = 3.0
"""Percent of the CPU that the host may take for others before a measurement counts as disturbed."""
ATTEMPTS = 2
STOLEN = "taken by the host %"


class _Value(msgspec.Struct, frozen=True):
    value: int = 0


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str


class _Sample(msgspec.Struct, frozen=True):
    """The part of a sample that shows whether it is done.

    The observer shares the CPU with the peers, so it decodes little.
    """

    metadata: _Metadata
    spec: _Value
    status: _Value = _Value()


class SampleObserver:
    """A watch on the samples: the number of finished ones, and the time at which a change was reconciled."""

    def __init__(self, bench: MeasuredPlane, n: int) -> None:
        self._bench = bench
        self._n = n
        self._done: set[str] = set()
        self._synced = asyncio.Event()
        self._all = asyncio.Event()
        self._waiting: dict[str, tuple[int, asyncio.Future[float]]] = {}
        self.begun = asyncio.Event()
        """Set when the first sample is done."""
        self.first = self.last = 0.0

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[asyncio.Task[Any]]:
        """Watch the samples until the block ends, which starts once all existing ones were delivered."""
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._synced.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            yield tasks[0]
        except TimeoutError:
            if tasks[0].done():  # the watch failed, so the event never arrived
                tasks[0].result()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """Watch the samples, and resume where the server closed the watch.

        It closes watches that are too slow. A new list would take its time from the measured peer, and be
        closed again.
        """
        options: WatchOptions = {"namespace": "default", "send_initial_events": True}
        while True:
            async for event in self._bench.client.watch(SAMPLES, into=_Sample, **options):
                if isinstance(event, Bookmark):
                    self._synced.set()
                    version = event.resource_version
                else:
                    self._record(event.object)
                    version = event.object.metadata.resource_version
                if self._synced.is_set():
                    options = {"namespace": "default", "resource_version": version}

    def _record(self, sample: _Sample) -> None:
        name, value = sample.metadata.name, sample.spec.value
        if sample.status.value != value:
            return
        if name not in self._done:
            self._done.add(name)
            self.last = time.monotonic()
            if not self.begun.is_set():
                self.first = self.last
                self.begun.set()
        if name in self._waiting and self._waiting[name][0] == value:
            self._waiting.pop(name)[1].set_result(time.monotonic())
        if len(self._done) >= self._n:
            self._all.set()

    async def wait_for_all(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._all.wait()

    @property
    def rate(self) -> float:
        """Finished samples per second, from the first to the last."""
        return (self._n - 1) / (self.last - self.first)

    async def change(self, name: str, value: int) -> float:
        """Write a new value. Return the seconds until the status has it."""
        reconciled: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (value, reconciled)
        started = time.monotonic()
        await self._bench.client.patch(SAMPLES, name, {"spec": {"value": value}}, namespace="default")
        async with asyncio.timeout(30):
            return await reconciled - started


async def compare(
    name: str, kind: str, engine: str, peers: Sequence[str], n: int, directory: Path
) -> list[Measurement]:
    measurements = []
    for peer in peers:
        if peer == BARE:
            read = functools.partial(bare_limit, kind, n, directory)
        else:
            command = peer_command(peer, kind)
            if command is None:
                continue
            read = functools.partial(one_peer, engine, command, n, directory)
        values = await undisturbed(read, peer, ATTEMPTS if n <= JUDGED else 1)
        measurements.append(Measurement(name, peer, n, values))
    return measurements


async def undisturbed(read: Callable[[], Awaitable[Values]], peer: str, attempts: int) -> Values:
    """Return an undisturbed measurement, or the least disturbed one."""
    results: list[Values] = []
    while len(results) < attempts and (not results or results[-1][STOLEN] > DISTURBED):
        values = await read()
        say(
            f"  {peer}: {values['wall s']:.2f} s, {values['writes per s']:.0f} a second"
            + (f" (the host took {values[STOLEN]:.0f} %)" if values[STOLEN] > DISTURBED else "")
        )
        results.append(values)
    return min(results, key=lambda values: values[STOLEN])


class HostSteal:
    """The CPU time that the host of a virtual machine takes from it, from now on."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), stolen_seconds()

    @property
    def percent(self) -> float:
        cores = (os.cpu_count() or 1) * (time.monotonic() - self._began)
        return (stolen_seconds() - self._before) / cores * 100


async def one_peer(engine: str, command: Command, n: int, directory: Path) -> Values:
    """Measure one operator on a fresh control plane with n samples."""
    async with control_plane(engine, directory, samples(n)) as bench:
        progress = SampleObserver(bench, n)
        async with progress.followed() as following:
            before, server = await requests_by_verb(bench), bench.server_cpu()
            started, steal = time.monotonic(), HostSteal()
            with running(
                command.arguments,
                log=directory / "peer.log",
                KUBECONFIG=str(bench.kubeconfig),
                **command.environment,
            ) as process:
                starting = asyncio.create_task(cpu_at_first_write(progress, process.pid))
                await wait_unless_exited(
                    progress.wait_for_all(600), process, directory / "peer.log", following
                )
                wall, stolen = time.monotonic() - started, steal.percent
                used, server = usage(process.pid), bench.server_cpu() - server
                after = await requests_by_verb(bench)
                some = random.Random(7).sample(range(n), min(n, CHANGES))
                latencies = [await progress.change(f"sample-{i}", 2) for i in some]
                peak = usage(process.pid).peak_rss_mb
        start_cpu = await starting
    verbs = {f"{verb} requests": after[verb] - before.get(verb, 0) for verb in after}
    return {
        "wall s": wall,
        "start to first write s": progress.first - started,
        "writes per s": progress.rate,
        "CPU s": used.cpu_seconds,
        "CPU s until the first write": start_cpu,
        "CPU µs a resource after that": (used.cpu_seconds - start_cpu) / n * 1e6,
        "server CPU s": server,
        STOLEN: stolen,
        "peak RSS MB": peak,
        "p50 ms": statistics.median(latencies) * 1000,
        "p99 ms": statistics.quantiles(latencies, n=100, method="inclusive")[98] * 1000,
        **{verb: count for verb, count in verbs.items() if count > 0},
    }


async def cpu_at_first_write(progress: SampleObserver, pid: int) -> float:
    await progress.begun.wait()
    return usage(pid).cpu_seconds


async def wait_unless_exited(
    work: Awaitable[None], process: Any, log: Path, *others: asyncio.Task[Any]
) -> None:
    """Wait for the work. Raise an error if the operator exits or another task fails first."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            for other in others:
                if other.done():
                    other.result()
            if process.poll() is not None:
                output = log.read_text(errors="replace")[-500:]
                raise RuntimeError(f"the operator exited with code {process.returncode}: {output}")
            await asyncio.wait([task], timeout=0.2)
        await task
    finally:
        task.cancel()


async def bare_limit(kind: str, n: int, directory: Path) -> Values:
    """Measure the same writes by the load generator alone, with the same observer."""
    async with control_plane("real", directory, samples(n)) as bench:
        progress = SampleObserver(bench, n)
        async with progress.followed():
            steal = HostSteal()
            outcome = await bench.load("owned" if kind == "owned" else "done", n)
            await progress.wait_for_all(30)
            stolen = steal.percent
    return {
        "wall s": outcome["seconds"],
        "writes per s": progress.rate,
        "server CPU s": outcome["server_cpu"],
        STOLEN: stolen,
    }


async def requests_by_verb(bench: MeasuredPlane) -> dict[str, float]:
    """Return the API server's count of requests for samples, deployments and services.

    The embedded one has none.
    """
    transport = HttpTransport(load_config(kubeconfig=bench.kubeconfig).access)
    response = await transport.request("GET", "/metrics")
    await transport.close()
    counts: dict[str, float] = {}
    for line in response.body.decode().splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line.rpartition(" ")
        if any(f'resource="{resource}"' in labels for resource in ("samples", "deployments", "services")):
            verb = labels.partition('verb="')[2].partition('"')[0]
            counts[verb] = counts.get(verb, 0) + float(value)
    return counts


def real_peers(n: int) -> list[str]:
    """Return the peers.

    The limit is measured where it is a target, right after Kapsa, since both are close.
    """
    ours, *others = PEERS
    return [ours, BARE, *others] if n == JUDGED else [*PEERS]


async def status_writes(n: int, directory: Path) -> list[Measurement]:
    return await compare("status-writes", "status", "real", real_peers(n), n, directory)


async def owned_children(n: int, directory: Path) -> list[Measurement]:
    peers = [peer for peer in real_peers(n) if peer != "kopf" or n < SLOW]
    if n == JUDGED:  # the speed of the machine changes in the minutes that the others take
        peers += [BARE, "kapsa"]
    return await compare("owned-children", "owned", "real", peers, n, directory)


SCENARIOS = (
    Scenario(
        name="status-writes",
        about="n custom resources, one status write each, from the start of the operator to all done, on the real control plane",
        sizes=(500, 2000, 8000),
        alone=2000,
        run=status_writes,
        has_kube_rs=True,
    ),
    Scenario(
        name="owned-children",
        about="n custom resources, each owning a Deployment and a Service, from the start of the operator to all done, on the real "
        "control plane; controller-runtime with CreateOrUpdate, and with server-side apply; kube-rs with server-side "
        "apply; kopf with a watch on the children, as the others, and without (blind)",
        sizes=(500, 2000, 8000),
        alone=500,
        run=owned_children,
        has_kube_rs=True,
        once={
            SMALL: Extra(
                "other ways", functools.partial(compare, "owned-children", "owned", "real", OTHER_WAYS)
            )
        },
        late={
            SLOW: Extra("kopf", functools.partial(compare, "owned-children", "owned", "real", ["kopf"])),
        },
    ),
    Scenario(
        name="status-writes-embedded",
        about="the same as status-writes on the embedded engine, whose single Python process limits the wall time: "
        "the CPU of the operator counts",
        sizes=(500,),
        run=functools.partial(compare, "status-writes-embedded", "status", "embedded", PEERS),
        needs_go=False,
        has_kube_rs=True,
    ),
    Scenario(
        name="owned-children-embedded",
        about="the same as owned-children on the embedded engine, whose single Python process limits the wall time; "
        "controller-runtime writes the built-in kinds as protobuf",
        sizes=(1000,),
        run=functools.partial(compare, "owned-children-embedded", "owned", "embedded", PEERS),
        needs_go=False,
        has_kube_rs=True,
    ),
)

"""Operators under load: from operator start to all resources done, then single changes."""

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
from bench.peer_programs import SAMPLES, Bench, Command, peer_command
from bench.planes import control_plane, samples
from bench.processes import running, stolen_seconds, usage
from bench.results import Measurement
from bench.scenarios import Extra, Scenario
from kapsa.runtime import Bookmark, HttpTransport, WatchOptions, load_config

Values = dict[str, float]

PEERS = ("kapsa", "controller-runtime", "kopf")
JUDGED = 2000
"""The size that the targets are about."""
PATIENT = 8000
"""At this size kopf takes minutes with children: that comes last."""
SMALL = 500
OTHER_WAYS = ("controller-runtime, apply", "kopf, blind")
"""Measured once, at the smallest size: controller-runtime with server-side apply, to tell what that costs, and kopf
without watching the children it made, to tell what that saves."""
CHANGES = 100
"""Single changes made to measure the time from write to reconciled."""
BARE = "bare load generator"
DISTURBED = 3.0
"""Per cent of the machine's CPU: a reading of which the host took more for others tells about them."""
ATTEMPTS = 2
STOLEN = "taken by the host %"


class _Value(msgspec.Struct, frozen=True):
    value: int = 0


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str


class _Seen(msgspec.Struct, frozen=True):
    """As much of a sample as tells whether it is done: the observer shares its cores with the observed."""

    metadata: _Metadata
    spec: _Value
    status: _Value = _Value()


class Progress:
    """Follows the samples through a watch: how many are done, and when a change was reconciled."""

    def __init__(self, bench: Bench, n: int) -> None:
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
        """Look on while the context lasts, which begins once everything that is there has been seen."""
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._synced.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            yield tasks[0]
        except TimeoutError:
            if tasks[0].done():  # what was waited for could not be seen
                tasks[0].result()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """The server ends a watch that it cannot serve fast enough. This goes on where that one ended: a new list would
        take the server's time from whoever is measured, and be ended, too."""
        options: WatchOptions = {"namespace": "default", "send_initial_events": True}
        while True:
            async for event in self._bench.client.watch(SAMPLES, into=_Seen, **options):
                if isinstance(event, Bookmark):
                    self._synced.set()
                    version = event.resource_version
                else:
                    self._see(event.object)
                    version = event.object.metadata.resource_version
                if self._synced.is_set():
                    options = {"namespace": "default", "resource_version": version}

    def _see(self, sample: _Seen) -> None:
        name, wanted = sample.metadata.name, sample.spec.value
        if sample.status.value != wanted:
            return
        if name not in self._done:
            self._done.add(name)
            self.last = time.monotonic()
            if not self.begun.is_set():
                self.first = self.last
                self.begun.set()
        if name in self._waiting and self._waiting[name][0] == wanted:
            self._waiting.pop(name)[1].set_result(time.monotonic())
        if len(self._done) >= self._n:
            self._all.set()

    async def everything(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._all.wait()

    @property
    def rate(self) -> float:
        """Samples done a second, from the first to the last."""
        return (self._n - 1) / (self.last - self.first)

    async def change(self, name: str, value: int) -> float:
        """Write a new value; the seconds until its status says so."""
        reconciled: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (value, reconciled)
        started = time.monotonic()
        await self._bench.client.patch(SAMPLES, name, {"spec": {"value": value}}, namespace="default")
        async with asyncio.timeout(30):
            return await reconciled - started


async def compare(
    name: str, kind: str, engine: str, peers: Sequence[str], n: int, directory: Path
) -> list[Measurement]:
    found = []
    for peer in peers:
        if peer == BARE:
            read = functools.partial(bare_limit, kind, n, directory)
        else:
            command = peer_command(peer, kind)
            if command is None:
                continue
            read = functools.partial(one_peer, engine, command, n, directory)
        values = await undisturbed(read, peer, ATTEMPTS if n <= JUDGED else 1)
        found.append(Measurement(name, peer, n, values))
    return found


async def undisturbed(read: Callable[[], Awaitable[Values]], peer: str, attempts: int) -> Values:
    """A reading that the machine's host left alone, or the one that it disturbed least."""
    readings: list[Values] = []
    while len(readings) < attempts and (not readings or readings[-1][STOLEN] > DISTURBED):
        values = await read()
        say(
            f"  {peer}: {values['wall s']:.2f} s, {values['writes per s']:.0f} a second"
            + (f" (the host took {values[STOLEN]:.0f} %)" if values[STOLEN] > DISTURBED else "")
        )
        readings.append(values)
    return min(readings, key=lambda values: values[STOLEN])


class Theft:
    """What the host of a virtual machine takes away from it, beginning now."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), stolen_seconds()

    @property
    def percent(self) -> float:
        cores = (os.cpu_count() or 1) * (time.monotonic() - self._began)
        return (stolen_seconds() - self._before) / cores * 100


async def one_peer(engine: str, command: Command, n: int, directory: Path) -> Values:
    """A fresh control plane with n samples; then the operator starts and the clock runs."""
    async with control_plane(engine, directory, samples(n)) as bench:
        progress = Progress(bench, n)
        async with progress.followed() as following:
            before, server = await requests_by_verb(bench), bench.server_cpu()
            started, theft = time.monotonic(), Theft()
            with running(
                command.arguments,
                log=directory / "peer.log",
                KUBECONFIG=str(bench.kubeconfig),
                **command.environment,
            ) as process:
                starting = asyncio.create_task(cpu_at_first_write(progress, process.pid))
                await ended_or(progress.everything(600), process, directory / "peer.log", following)
                wall, stolen = time.monotonic() - started, theft.percent
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


async def cpu_at_first_write(progress: Progress, pid: int) -> float:
    await progress.begun.wait()
    return usage(pid).cpu_seconds


async def ended_or(work: Awaitable[None], process: Any, log: Path, *others: asyncio.Task[Any]) -> None:
    """Wait for the work, but not for an operator that has died, nor for a task of ours that has."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            for other in others:
                if other.done():
                    other.result()
            if process.poll() is not None:
                said = log.read_text(errors="replace")[-500:]
                raise RuntimeError(f"the operator ended with {process.returncode}: {said}")
            await asyncio.wait([task], timeout=0.2)
        await task
    finally:
        task.cancel()


async def bare_limit(kind: str, n: int, directory: Path) -> Values:
    """The same writes by a program that does nothing else, seen by the same observer."""
    async with control_plane("real", directory, samples(n)) as bench:
        progress = Progress(bench, n)
        async with progress.followed():
            theft = Theft()
            outcome = await bench.load("owned" if kind == "owned" else "done", n)
            await progress.everything(30)
            stolen = theft.percent
    return {
        "wall s": outcome["seconds"],
        "writes per s": progress.rate,
        "server CPU s": outcome["server_cpu"],
        STOLEN: stolen,
    }


async def requests_by_verb(bench: Bench) -> dict[str, float]:
    """The API server's own count of requests for samples, deployments and services; the embedded one keeps none."""
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
    """The limit is measured where it is a target, and right after Kapsa: it lies close."""
    ours, *others = PEERS
    return [ours, BARE, *others] if n == JUDGED else [*PEERS]


async def status_writes(n: int, directory: Path) -> list[Measurement]:
    return await compare("status-writes", "status", "real", real_peers(n), n, directory)


async def owned_children(n: int, directory: Path) -> list[Measurement]:
    peers = [peer for peer in real_peers(n) if peer != "kopf" or n < PATIENT]
    if n == JUDGED:  # the machine's speed changes in the minute that the others take
        peers += [BARE, "kapsa"]
    return await compare("owned-children", "owned", "real", peers, n, directory)


SCENARIOS = (
    Scenario(
        name="status-writes",
        about="n custom resources, one status write each, from operator start to all done, on the real control plane",
        sizes=(500, 2000, 8000),
        alone=2000,
        run=status_writes,
    ),
    Scenario(
        name="owned-children",
        about="n custom resources, each owning a Deployment and a Service, from operator start to all done, on the real "
        "control plane; controller-runtime with CreateOrUpdate, and with server-side apply; kopf with its "
        "children watched, as the others do it, and blind",
        sizes=(500, 2000, 8000),
        alone=500,
        run=owned_children,
        once={
            SMALL: Extra(
                "other ways", functools.partial(compare, "owned-children", "owned", "real", OTHER_WAYS)
            )
        },
        late={
            PATIENT: Extra("kopf", functools.partial(compare, "owned-children", "owned", "real", ["kopf"])),
        },
    ),
    Scenario(
        name="status-writes-embedded",
        about="the same as status-writes on the embedded engine, whose one Python process bounds the wall time: what "
        "counts is the operator's CPU",
        sizes=(500,),
        run=functools.partial(compare, "status-writes-embedded", "status", "embedded", PEERS),
        needs_go=False,
    ),
    Scenario(
        name="owned-children-embedded",
        about="the same as owned-children on the embedded engine, which is no limit to anybody here; without "
        "controller-runtime, whose client writes built-in kinds as protobuf, which that engine does not speak",
        sizes=(1000,),
        run=functools.partial(compare, "owned-children-embedded", "owned", "embedded", ["kapsa", "kopf"]),
        needs_go=False,
    ),
)

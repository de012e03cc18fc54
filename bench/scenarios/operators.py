"""Operators under load on the real control plane: from operator start to all resources done, then single changes."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from bench.lab import SAMPLES, Bench, control_plane, peer_command
from bench.processes import running, usage
from bench.results import Measurement
from bench.scenarios import Scenario
from kapsa.runtime.connect import load_config
from kapsa.runtime.transport import HttpTransport
from kapsa.runtime.watch import Bookmark

PEERS = ("kapsa", "controller-runtime", "kopf")
CHANGES = 100
"""Single changes made to measure the time from write to reconciled."""


class Progress:
    """Follows the samples through a watch: how many are done, and when a change was reconciled."""

    def __init__(self, bench: Bench, n: int) -> None:
        self._bench = bench
        self._n = n
        self._done: set[str] = set()
        self._all = asyncio.Event()
        self._waiting: dict[str, tuple[int, asyncio.Future[float]]] = {}

    async def follow(self) -> None:
        while (
            True
        ):  # the server ends a watch whose reader is slow, and this one shares its cores with the peers
            async for event in self._bench.client.watch(SAMPLES, namespace="default", resource_version="0"):
                if not isinstance(event, Bookmark):
                    self._see(event.object)

    def _see(self, sample: Any) -> None:
        name, wanted = sample["metadata"]["name"], sample["spec"]["value"]
        if sample.get("status", {}).get("value") == wanted:
            self._done.add(name)
            if name in self._waiting and self._waiting[name][0] == wanted:
                self._waiting.pop(name)[1].set_result(time.monotonic())
        if len(self._done) >= self._n:
            self._all.set()

    async def everything(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._all.wait()

    async def change(self, name: str, value: int) -> float:
        """Write a new value; the seconds until its status says so."""
        reconciled: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (value, reconciled)
        started = time.monotonic()
        await self._bench.client.patch(SAMPLES, name, {"spec": {"value": value}}, namespace="default")
        async with asyncio.timeout(30):
            return await reconciled - started


async def compare(kind: str, n: int, directory: Path) -> list[Measurement]:
    scenario = "status-writes" if kind == "status" else "owned-children"
    found = []
    for peer in PEERS:
        command = peer_command(peer, kind, directory)
        if command is not None:
            found.append(Measurement(scenario, peer, n, await one_peer(command, n, directory)))
    if kind == "status":
        found.append(Measurement(scenario, "bare load generator", n, await bare_limit(n, directory)))
    return found


async def one_peer(command: tuple[list[str], dict[str, str]], n: int, directory: Path) -> dict[str, float]:
    """A fresh control plane with n samples; then the operator starts and the clock runs."""
    async with control_plane("real", directory) as bench:
        await bench.load("create", n)
        progress = Progress(bench, n)
        following = asyncio.create_task(progress.follow())
        before = await requests_by_verb(bench)
        started = time.monotonic()
        with running(
            command[0], log=directory / "peer.log", KUBECONFIG=str(bench.kubeconfig), **command[1]
        ) as process:
            await ended_or(progress.everything(600), process, following)
            wall = time.monotonic() - started
            used = usage(process.pid)
            after = await requests_by_verb(bench)
            latencies = [
                await progress.change(f"sample-{i}", 2) for i in random.Random(7).sample(range(n), CHANGES)
            ]
            peak = usage(process.pid).peak_rss_mb
        following.cancel()
    verbs = {f"{verb} requests": after[verb] - before.get(verb, 0) for verb in after}
    return {
        "wall s": wall,
        "CPU s": used.cpu_seconds,
        "peak RSS MB": peak,
        "p50 ms": statistics.median(latencies) * 1000,
        "p99 ms": statistics.quantiles(latencies, n=100)[98] * 1000,
        **{verb: count for verb, count in verbs.items() if count},
    }


async def ended_or(work: Awaitable[None], process: Any, *others: asyncio.Task[None]) -> None:
    """Wait for the work, but not for an operator that has died, nor for a task of ours that has."""
    task = asyncio.ensure_future(work)
    while not task.done():
        for other in others:
            if other.done():
                task.cancel()
                other.result()
        if process.poll() is not None:
            task.cancel()
            raise RuntimeError(f"the operator ended with {process.returncode}; see peer.log")
        await asyncio.wait([task], timeout=0.2)
    await task


async def bare_limit(n: int, directory: Path) -> dict[str, float]:
    async with control_plane("real", directory) as bench:
        await bench.load("create", n)
        outcome = await bench.load("status", n)
    return {"wall s": outcome["seconds"], "writes per s": n / outcome["seconds"]}


async def requests_by_verb(bench: Bench) -> dict[str, float]:
    """The API server's own count of requests for samples, deployments and services."""
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


async def status_writes(n: int, directory: Path) -> list[Measurement]:
    return await compare("status", n, directory)


async def owned_children(n: int, directory: Path) -> list[Measurement]:
    return await compare("owned", n, directory)


SCENARIOS = (
    Scenario(
        name="status-writes",
        about="n custom resources, one status write each, from operator start to all done",
        sizes=(500, 2000, 8000),
        run=status_writes,
    ),
    Scenario(
        name="owned-children",
        about="n custom resources, each owning a Deployment and a Service, from operator start to all done",
        sizes=(500, 2000),
        run=owned_children,
    ),
)

"""The embedded API server compared with kube-apiserver and etcd, with the same client."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

from bench.measured_plane import MeasuredPlane
from bench.planes import control_plane, embedded_plane, real_plane
from bench.results import Measurement
from bench.scenarios import Scenario
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from kapsa.runtime.testing import InProcessTransport

STARTS = 5
LISTED = 5000
WATCHERS = 20


async def throughput(n: int, directory: Path) -> list[Measurement]:
    """Measure creates, gets, status patches, lists of 5,000 and changes with 20 watchers, on each engine."""
    measurements = []
    for engine in ("embedded", "real"):
        async with control_plane(engine, directory) as bench:
            values = await one_engine(bench, n)
        measurements.append(Measurement("servers", engine, n, values))
    return measurements


async def one_engine(bench: MeasuredPlane, n: int) -> dict[str, float]:
    await bench.load("create", 200, prefix="warm")
    values = {}
    for operation in ("create", "get", "status"):
        outcome = await bench.load(operation, n)
        values[f"{operation} per CPU s"] = n / outcome["server_cpu"]
    if n < LISTED:
        await bench.load("create", LISTED - n, prefix="more")
    lists = 20
    outcome = await bench.load("list", lists, c=2)
    values["lists of 5,000 per CPU s"] = lists / outcome["server_cpu"]
    changes = 500
    outcome = await bench.load("watch", changes, w=WATCHERS)
    values["watch deliveries per CPU s"] = changes * WATCHERS / outcome["server_cpu"]
    return values


async def memory(n: int, directory: Path) -> list[Measurement]:
    """Measure the resident memory of the API server and its store with n small objects, on each engine."""
    measurements = []
    for engine in ("embedded", "real"):
        async with control_plane(engine, directory) as bench:
            before = sum(one.rss_mb for one in bench.server_usage())
            await bench.load("create", n)
            after = sum(one.rss_mb for one in bench.server_usage())
        measurements.append(
            Measurement("server-memory", engine, n, {"RSS MB": after, "RSS over empty MB": after - before})
        )
    return measurements


async def starts(n: int, directory: Path) -> list[Measurement]:
    """Measure n starts of each engine, until the first response."""
    measurements = []
    for name, start in (("embedded, in-process", in_process), ("embedded, as a process", as_a_process)):
        seconds = [await start(directory) for _ in range(n)]
        measurements.append(
            Measurement("server-start", name, n, {"ms to ready": statistics.median(seconds) * 1000})
        )
    if shutil.which("go") is not None:
        async with real_plane() as plane:
            took = plane.startup_seconds
        measurements.append(Measurement("server-start", "real", n, {"ms to ready": took * 1000}))
    return measurements


async def in_process(directory: Path) -> float:
    started = time.monotonic()
    async with (
        DevCluster(http=False, controllers=False) as cluster,
        Client(InProcessTransport(cluster)) as client,
    ):
        await client.list("v1/Namespace")
        return time.monotonic() - started


async def as_a_process(directory: Path) -> float:
    started = time.monotonic()
    async with embedded_plane(directory) as (kubeconfig, _), Client.connect(kubeconfig=kubeconfig) as client:
        await client.list("v1/Namespace")
        return time.monotonic() - started


SCENARIOS = (
    Scenario(
        name="server-start",
        about="from the start to the first response, the median of n starts; the real engine (etcd and "
        "kube-apiserver) is started once",
        sizes=(STARTS,),
        run=starts,
        needs_go=False,
    ),
    Scenario(
        name="servers",
        about="requests per CPU second of the API server and its store, embedded and real, with the same client",
        sizes=(3000,),
        run=throughput,
    ),
    Scenario(
        name="server-memory",
        about="resident memory with n small objects, embedded and real",
        sizes=(10000,),
        run=memory,
    ),
)

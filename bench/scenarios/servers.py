"""The embedded API server compared with kube-apiserver and etcd, with the same client."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.measured_plane import MeasuredPlane
from bench.planes import account_kubeconfig, control_plane, embedded_plane, real_plane
from bench.results import Measurement
from bench.scenarios import Scenario
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from kapsa.runtime.testing import InProcessTransport

EMBEDDED_TOKEN = "embedded, by token"
STARTS = 5
LISTED = 5000
WATCHERS = 20


async def throughput(n: int, directory: Path) -> list[Measurement]:
    """Measure creates, gets, status patches, lists of 5,000 and changes with 20 watchers, on each engine.

    The administrator of the embedded engine needs no role; a service account's token and roles are checked each time,
    as on the real engine.
    """
    measurements = []
    for peer in ("embedded", EMBEDDED_TOKEN, "real"):
        async with control_plane(peer.partition(",")[0], directory) as bench:
            if peer == EMBEDDED_TOKEN:
                bench = msgspec.structs.replace(bench, kubeconfig=await account_kubeconfig(bench))
            values = await one_engine(bench, n)
        measurements.append(Measurement("servers", peer, n, values))
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


async def crowd(n: int, directory: Path) -> list[Measurement]:
    """Measure n embedded clusters with TLS in one process."""
    command = [sys.executable, "-m", "bench.tls_clusters", str(n)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the clusters failed with exit code {process.returncode}")
    values = msgspec.json.decode(output, type=dict[str, float])
    return [Measurement("server-crowd", "embedded", n, values)]


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
    Scenario(
        name="server-crowd",
        about="n embedded clusters with TLS and controllers in one process, each called once: all that it used",
        sizes=(10,),
        run=crowd,
        needs_go=False,
    ),
)

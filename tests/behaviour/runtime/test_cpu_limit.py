"""An operator with 20,000 converged resources and a quarter of a CPU: it answers probes, leads and works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Operator, custom_resource_definition
from kapsa.runtime.testing import InProcessTransport
from tests.behaviour.runtime.cpu_limit import cpu_limit
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app

RESOURCES = 20_000
MILLICORES = 250
PATIENCE = 300.0
"""Seconds that a step may take on a busy machine: only a failure waits that long."""
LONGEST_PROBE = 10.0
"""Seconds. A loop that is held by 20,000 runs answers after more than 20 with this limit."""

PROGRAM = """
import json
from kapsa.runtime import Operator
from tests.runtime.sample_app import Recorder, config_map

async def work(resource, ctx):
    for number in range(30):  # converged: it computes what it wants, finds it there, and awaits nothing
        json.dumps(config_map(f"{resource.name}-{number}"))
    if resource.name.startswith("new-"):
        ctx.status.ready = 1

controller = Recorder(work, max_concurrent_reconciles=8)
operator = Operator(controllers=[controller], leader_election="limited")
"""


class Probe:
    """A prober that calls /healthz of a replica, one call after the other, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.longest = 0.0
        self.calls = 0
        self._ends = False

    def run(self) -> None:
        while not self._ends:
            began = time.monotonic()
            if self.get("/healthz") is not None or self.calls:
                self.longest = max(self.longest, time.monotonic() - began)
                self.calls += 1
            time.sleep(0.2)

    def get(self, path: str) -> str | None:
        """Return the text of a successful response; None if there is no answer or a failure."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=PATIENCE) as response:
                return str(response.read().decode())
        except (OSError, urllib.error.URLError):
            return None

    async def is_working(self) -> bool:
        text = await asyncio.to_thread(self.get, "/readyz")
        return text is not None and "controller app: working" in text

    async def runs(self) -> float:
        """Return how many runs the replica has made."""
        text = await asyncio.to_thread(self.get, "/metrics") or ""
        lines = [line for line in text.splitlines() if line.startswith("controller_reconciliations_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def end(self) -> None:
        self._ends = True


@contextlib.asynccontextmanager
async def replica(directory: Path, kubeconfig: Path, port: int) -> AsyncIterator[Probe]:
    """Run the operator under the limit, and probe it."""
    probe = Probe(port)
    with cpu_limit(MILLICORES) as processes:
        command = f"echo $$ > {processes} && exec {sys.executable} -m kapsa.runtime.operator.entrypoint limited:operator"
        process = await asyncio.create_subprocess_exec(
            *(
                "sh",
                "-c",
                f"{command} --kubeconfig={kubeconfig} --health-port={port} --metrics-port={port} --log-level=error",
            ),
            cwd=directory,
            stderr=asyncio.subprocess.DEVNULL,
        )
        probing = asyncio.create_task(asyncio.to_thread(probe.run))
        try:
            yield probe
        finally:
            probe.end()
            process.kill()
            await process.wait()
            await probing


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_twenty_thousand_resources_at_a_quarter_of_a_cpu(
    tmp_path: Path,
    unused_tcp_port_factory: Any,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)]))
    (tmp_path / "limited.py").write_text(PROGRAM)
    async with DevCluster(controllers=False) as cluster:
        client = Client(InProcessTransport(cluster))
        await client.create(custom_resource_definition([App]))
        for number in range(RESOURCES):
            await client.create(app(f"app-{number}"))
        await converge(client)
        ports = unused_tcp_port_factory(), unused_tcp_port_factory()
        async with (
            replica(tmp_path, cluster.kubeconfig, ports[0]) as first,
            replica(tmp_path, cluster.kubeconfig, ports[1]) as second,
        ):
            await eventually(partial(working, first, second), bool, "a leader", seconds=PATIENCE)
            lease = await client.get("coordination.k8s.io/v1/Lease", "limited", namespace="default")
            seconds: list[float] = []
            while not seconds or await first.runs() + await second.runs() < RESOURCES:
                seconds.append(await time_of_a_run(client, f"new-{len(seconds)}"))
                await asyncio.sleep(0.2)
            after = await client.get("coordination.k8s.io/v1/Lease", "limited", namespace="default")
    longest = max(first.longest, second.longest)
    record_property(
        "sweep", f"at {MILLICORES}m: a new resource after {max(seconds):.2f} s, a probe {longest:.2f} s"
    )
    assert after["spec"]["holderIdentity"] == lease["spec"]["holderIdentity"], "the leader kept its lease"
    assert after["spec"].get("leaseTransitions", 0) == lease["spec"].get("leaseTransitions", 0)
    assert min(seconds) < 1.0
    assert first.calls
    assert second.calls
    assert longest < LONGEST_PROBE


async def converge(client: Client) -> None:
    """Have each resource reconciled once, without a limit: the first run writes the status."""
    recorder = Recorder(max_concurrent_reconciles=32)
    operator = Operator(controllers=[recorder])

    async def runs() -> int:
        return len(recorder.runs)

    async with operator.running(client, serve=False):
        await eventually(runs, lambda count: count >= RESOURCES, "a run of each", seconds=PATIENCE)


async def working(*probes: Probe) -> bool:
    return any([await probe.is_working() for probe in probes])


async def time_of_a_run(client: Client, name: str) -> float:
    """Create a resource and return the seconds until its status is written."""
    began = time.monotonic()
    await client.create(app(name))

    async def ready() -> bool:
        return (await client.get(App, name, namespace="default")).status.ready == 1

    await eventually(ready, bool, f"a run of {name}", seconds=PATIENCE)
    return time.monotonic() - began

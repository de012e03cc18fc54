"""Environments: from the start of the operator until n previews are Ready, and then half a minute at rest.

The cluster, the git server and the registry are in another process. The operator is measured, with the git
and helm that it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from bench.environments_cluster import ClusterProgress
from bench.processes import children_seconds, running, usage
from bench.programs import PEERS
from bench.results import Measurement
from bench.scenarios import Scenario

LIMIT_SECONDS = 1800.0
STEADY_SECONDS = 30.0
"""The length of the measurement at rest."""


async def environments(n: int, directory: Path) -> list[Measurement]:
    """Measure n previews of n / 50 projects, each with its own commit, build and host."""
    with tempfile.TemporaryDirectory(prefix="environments-", dir=directory) as own:
        async with EnvironmentsCluster.running(Path(own), n) as cluster:
            first = await cluster.progress()
            command = [sys.executable, "-m", "kapsa.runtime.operator.entrypoint"]
            target = f"{PEERS / 'kapsa_environments.py'}:operator"
            started = time.monotonic()
            with running(
                [*command, target, "--kubeconfig", first.kubeconfig],
                log=directory / "environments.log",
                KAPSA_CACHE_DIRECTORY=f"{own}/cache",
                KAPSA_GIT_PROTOCOLS="http",
                KAPSA_LEADER_ELECTION="false",  # the renewal of a lease would count as a write
                KAPSA_LOG_LEVEL="WARNING",
                KAPSA_METRICS_PORT="0",
                KAPSA_VERIFY_ROUTES="true",
                KAPSA_VERIFY_ADDRESS=first.ingress_address,
            ) as operator:
                await cluster.until_ready(n)
                wall = time.monotonic() - started
                begun = await cluster.at_rest()
                used, programs = usage(operator.pid), children_seconds(operator.pid)
                steady = await cluster.steady(operator.pid, begun)
    writes = sum(begun.writes.values())
    values = {
        "wall s": wall,
        "CPU ms per environment": used.cpu_seconds / n * 1000,
        "CPU ms of git and helm per environment": programs / n * 1000,
        "API writes per environment": writes / n,
        "API reads per environment": (sum(begun.requests.values()) - writes) / n,
        "peak RSS MB": used.peak_rss_mb,
        **steady,
    }
    return [Measurement("environments", "kapsa", n, values)]


class EnvironmentsCluster:
    """The process with the cluster and the servers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, directory: Path, n: int) -> AsyncIterator[EnvironmentsCluster]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.environments_cluster",
            str(directory),
            str(n),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1024 * 1024,
        )
        try:
            yield cls(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def progress(self) -> ClusterProgress:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process with the cluster exited")
        return msgspec.json.decode(line, type=ClusterProgress)

    async def until_ready(self, n: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while (progress := await self.progress()).ready < n:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{progress.ready} of {n} are ready after {LIMIT_SECONDS:.0f} s: {progress.unready}"
                )
            await asyncio.sleep(1)

    async def at_rest(self) -> ClusterProgress:
        """Wait until the operator has not written for a while."""
        before = await self.progress()
        while True:
            await asyncio.sleep(3)
            now = await self.progress()
            if now.writes == before.writes:
                return now
            before = now

    async def steady(self, pid: int, before: ClusterProgress) -> dict[str, float]:
        """Measure the operator at rest."""
        cpu, started = usage(pid).cpu_seconds + children_seconds(pid), time.monotonic()
        await asyncio.sleep(STEADY_SECONDS)
        spent = usage(pid).cpu_seconds + children_seconds(pid) - cpu
        seconds = time.monotonic() - started
        after = await self.progress()
        return {
            "steady: API writes": sum(after.writes.values()) - sum(before.writes.values()),
            "steady: API requests": sum(after.requests.values()) - sum(before.requests.values()),
            "steady: % of a core": spent / seconds * 100,
        }


SCENARIO = Scenario(
    name="environments",
    about="n previews from the start of the operator to all Ready, with all steps (namespace, policies, secrets, build, render by helm, "
    "apply, route, verify), then half a minute at rest",
    sizes=(500,),
    alone=50,
    run=environments,
    needs_go=False,
)

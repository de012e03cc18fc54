"""Environments: from the operator's start to n previews that are Ready, built, rendered, deployed, routed and verified; then rest.

The cluster, the git server and the registry are in another process: what is measured is the operator, and the git and helm that
it starts.
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

from bench.environments_cluster import Progress
from bench.peer_programs import PEERS
from bench.processes import TICKS, running, usage
from bench.results import Measurement
from bench.scenarios import Scenario

LIMIT_SECONDS = 1800.0
STEADY_SECONDS = 30.0
"""How long nothing may happen."""


async def environments(n: int, directory: Path) -> list[Measurement]:
    """n previews of n / 50 projects, each with a commit, a build and a host of its own."""
    with tempfile.TemporaryDirectory(prefix="environments-", dir=directory) as own:
        async with World.running(Path(own), n) as world:
            first = await world.progress()
            command = [sys.executable, "-m", "kapsa.runtime.operator.entrypoint"]
            target = f"{PEERS / 'kapsa_environments.py'}:operator"
            started = time.monotonic()
            with running(
                [*command, target, "--kubeconfig", first.kubeconfig],
                log=directory / "environments.log",
                KAPSA_CACHE_DIRECTORY=f"{own}/cache",
                KAPSA_GIT_PROTOCOLS="http",
                KAPSA_LEADER_ELECTION="false",  # renewing a lease would be counted as a write
                KAPSA_LOG_LEVEL="WARNING",
                KAPSA_METRICS_PORT="0",
                KAPSA_VERIFY_ROUTES="true",
                KAPSA_VERIFY_ADDRESS=first.answers_at,
            ) as operator:
                await world.until_ready(n)
                wall = time.monotonic() - started
                begun = await world.at_rest()
                used, programs = usage(operator.pid), programs_seconds(operator.pid)
                steady = await world.steady(operator.pid, begun)
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


class World:
    """The other process, asked by lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, directory: Path, n: int) -> AsyncIterator[World]:
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

    async def progress(self) -> Progress:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the world around the operator ended")
        return msgspec.json.decode(line, type=Progress)

    async def until_ready(self, n: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while (found := await self.progress()).ready < n:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{found.ready} of {n} are ready after {LIMIT_SECONDS:.0f} s: {found.unready}"
                )
            await asyncio.sleep(1)

    async def at_rest(self) -> Progress:
        """Wait until nothing was written for a while."""
        before = await self.progress()
        while True:
            await asyncio.sleep(3)
            now = await self.progress()
            if now.writes == before.writes:
                return now
            before = now

    async def steady(self, pid: int, before: Progress) -> dict[str, float]:
        """What the operator does while there is nothing to do."""
        cpu, started = usage(pid).cpu_seconds + programs_seconds(pid), time.monotonic()
        await asyncio.sleep(STEADY_SECONDS)
        spent = usage(pid).cpu_seconds + programs_seconds(pid) - cpu
        seconds = time.monotonic() - started
        after = await self.progress()
        return {
            "steady: API writes": sum(after.writes.values()) - sum(before.writes.values()),
            "steady: API requests": sum(after.requests.values()) - sum(before.requests.values()),
            "steady: % of a core": spent / seconds * 100,
        }


def programs_seconds(pid: int) -> float:
    """CPU seconds of the programs that a process has started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS


SCENARIO = Scenario(
    name="environments",
    about="n previews from operator start to all Ready with every step (namespace, policies, secrets, build, render by helm, "
    "apply, route, verify), then half a minute in which nothing happens",
    sizes=(500,),
    alone=50,
    run=environments,
    needs_go=False,
)

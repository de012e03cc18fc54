"""Many resources at rest: from start to synced, and the memory they take in the operator."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.lab import Bench, control_plane, peer_command
from bench.processes import running, usage
from bench.results import Measurement
from bench.scenarios import Scenario
from bench.scenarios.operators import PEERS, ended_or

SETTLED_SECONDS = 2.0


async def synced(n: int, directory: Path) -> list[Measurement]:
    """Resources that are already done: the operator only has to read them. Base is the same operator without any."""
    found = []
    for peer in PEERS:
        command = peer_command(peer, "status", directory)
        if command is None:
            continue
        async with control_plane("real", directory) as bench:
            base = await at_rest(bench, command, directory)
            await bench.load("create", n)
            first = await at_rest(bench, command, directory)  # writes each status once
            again = await at_rest(bench, command, directory)
        found.append(
            Measurement(
                "cache",
                peer,
                n,
                {
                    "start to idle s": again["seconds"],
                    "CPU s": again["cpu"],
                    "base RSS MB": base["rss"],
                    "RSS over base MB": again["rss"] - base["rss"],
                    "KB a resource": (again["rss"] - base["rss"]) * 1024 / n,
                    "RSS over base after writing MB": first["rss"] - base["rss"],
                },
            )
        )
    return found


async def at_rest(
    bench: Bench, command: tuple[list[str], dict[str, str]], directory: Path
) -> dict[str, float]:
    """Start the operator and wait until it uses no CPU any more."""
    started = time.monotonic()
    with running(
        command[0], log=directory / "peer.log", KUBECONFIG=str(bench.kubeconfig), **command[1]
    ) as process:
        last_busy, cpu = started, 0.0

        async def idle() -> None:
            nonlocal last_busy, cpu
            while time.monotonic() - last_busy < SETTLED_SECONDS:
                await asyncio.sleep(0.1)
                now = usage(process.pid).cpu_seconds
                if now - cpu >= 0.02:
                    last_busy, cpu = time.monotonic(), now

        await ended_or(idle(), process)
        used = usage(process.pid)
    return {"seconds": last_busy - started, "cpu": used.cpu_seconds, "rss": used.rss_mb}


SCENARIO = Scenario(
    name="cache",
    about="n resources that are already done: from start to idle, and the memory they take",
    sizes=(500, 2000, 10000),
    run=synced,
)

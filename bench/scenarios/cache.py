"""Many resources at rest: from start to synced, and the memory they take in the operator."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence
from pathlib import Path

from bench.console import say
from bench.lab import Bench, Command, control_plane, peer_command
from bench.processes import running, usage
from bench.results import Measurement
from bench.scenarios import Scenario
from bench.scenarios.operators import ended_or

SETTLED_SECONDS = 2.0


async def synced(peers: Sequence[str], n: int, directory: Path) -> list[Measurement]:
    """Resources that are already done: the operator only has to read them. Base is the same operator without any.

    The peers read the same resources one after the other; none of them writes.
    """
    commands = {peer: command for peer in peers if (command := peer_command(peer, "status")) is not None}
    async with control_plane("real", directory) as bench:
        bases = {peer: await at_rest(bench, command, directory) for peer, command in commands.items()}
        await bench.create_samples(n)
        await bench.load("done", n)
        found = []
        for peer, command in commands.items():
            if peer == "kopf":
                await at_rest(bench, command, directory)  # marks each resource as handled, in an annotation
            again = await at_rest(bench, command, directory)
            found.append(Measurement("cache", peer, n, told(bases[peer], again, n)))
            say(f"  {peer}: {again['seconds']:.1f} s, {again['rss']:.0f} MB")
    return found


def told(base: dict[str, float], full: dict[str, float], n: int) -> dict[str, float]:
    return {
        "start to idle s": full["seconds"],
        "CPU s": full["cpu"],
        "base RSS MB": base["rss"],
        "RSS over base MB": full["rss"] - base["rss"],
        "KB a resource": (full["rss"] - base["rss"]) * 1024 / n,
        "peak RSS MB": full["peak"],
    }


async def at_rest(bench: Bench, command: Command, directory: Path) -> dict[str, float]:
    """Start the operator and wait until it uses no CPU any more."""
    started = time.monotonic()
    log = directory / "peer.log"
    with running(
        command.arguments, log=log, KUBECONFIG=str(bench.kubeconfig), **command.environment
    ) as process:
        last_busy, cpu = started, 0.0

        async def idle() -> None:
            nonlocal last_busy, cpu
            while time.monotonic() - last_busy < SETTLED_SECONDS:
                await asyncio.sleep(0.1)
                now = usage(process.pid).cpu_seconds
                if now - cpu >= 0.02:
                    last_busy, cpu = time.monotonic(), now

        await ended_or(idle(), process, log)
        used = usage(process.pid)
    return {
        "seconds": last_busy - started,
        "cpu": used.cpu_seconds,
        "rss": used.rss_mb,
        "peak": used.peak_rss_mb,
    }


SCENARIO = Scenario(
    name="cache",
    about="n resources that are already done: from start to idle, and the memory they take",
    sizes=(10000,),
    run=functools.partial(synced, ("kapsa", "controller-runtime")),
    once={10000: functools.partial(synced, ("kopf",))},
)

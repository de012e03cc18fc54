"""Many resources at rest: the time from start to idle, and the operator's memory."""

from __future__ import annotations

import asyncio
import collections
import time
from pathlib import Path

from bench.console import say
from bench.measured_plane import MeasuredPlane
from bench.planes import Store, control_plane, samples
from bench.processes import running, usage
from bench.programs import Command, peer_command
from bench.results import Measurement
from bench.scenarios import Scenario
from bench.scenarios.operators import wait_unless_exited

PEERS = ("kapsa", "controller-runtime", "kopf")
SETTLED_SECONDS = 2.0
WINDOW = 3
"""Tenths of a second in which two CPU ticks count as work. Single ticks are housekeeping."""


async def synced(n: int, directory: Path) -> list[Measurement]:
    """Measure operators with n finished resources, which they only read.

    The base is the same operator without any.

    Peers that share a control plane read the same resources in turn. None of them writes.
    """
    commands = {peer: command_of(peer) for peer in PEERS}
    async with control_plane("real", directory) as bench:
        bases = {peer: await at_rest(bench, command, directory) for peer, command in commands.items()}
    measurements = []
    for store, peers in ((done(n), ("kapsa", "controller-runtime")), (handled(n), ("kopf",))):
        async with control_plane("real", directory, store) as bench:
            for peer in peers:
                full = await at_rest(bench, commands[peer], directory)
                measurements.append(Measurement("cache", peer, n, values_of(bases[peer], full, n)))
                say(f"  {peer}: {full['seconds']:.1f} s, {full['rss']:.0f} MB")
    return measurements


def done(n: int) -> Store:
    """Return a store with n samples whose status is written."""

    async def fill(bench: MeasuredPlane) -> None:
        await bench.load("done", n)

    return Store(f"{n}-done", fill, after=samples(n))


def handled(n: int) -> Store:
    """Return the same store after kopf has marked each sample as handled with an annotation."""

    async def fill(bench: MeasuredPlane) -> None:
        await at_rest(bench, command_of("kopf"), bench.directory)

    return Store(f"{n}-handled", fill, after=done(n))


def command_of(peer: str) -> Command:
    command = peer_command(peer, "status")
    if command is None:
        raise RuntimeError(f"{peer} needs a Go toolchain")
    return command


def values_of(base: dict[str, float], full: dict[str, float], n: int) -> dict[str, float]:
    return {
        "start to idle s": full["seconds"],
        "CPU s": full["cpu"],
        "base RSS MB": base["rss"],
        "RSS over base MB": full["rss"] - base["rss"],
        "KB a resource": (full["rss"] - base["rss"]) * 1024 / n,
        "peak RSS MB": full["peak"],
    }


async def at_rest(bench: MeasuredPlane, command: Command, directory: Path) -> dict[str, float]:
    """Start the operator, wait until it is idle, and return its usage."""
    started = time.monotonic()
    log = directory / "peer.log"
    with running(
        command.arguments, log=log, KUBECONFIG=str(bench.kubeconfig), **command.environment
    ) as process:
        last_busy = started
        before = collections.deque([0.0], maxlen=WINDOW)

        async def idle() -> None:
            nonlocal last_busy
            while time.monotonic() - last_busy < SETTLED_SECONDS:
                await asyncio.sleep(0.1)
                now = usage(process.pid).cpu_seconds
                if now - before[0] >= 0.02:
                    last_busy = time.monotonic()
                before.append(now)

        await wait_unless_exited(idle(), process, log)
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
    alone=4000,
    run=synced,
)

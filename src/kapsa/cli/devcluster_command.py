"""A command that runs with a cluster of its own: `kapsa devcluster run -- COMMAND`."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kapsa.devcluster import DevCluster

__all__ = ["CommandNotFound", "check_command", "run_command"]

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1
"""The option of prctl that sends a process a signal when its parent ends."""
_FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to each process of its foreground group: the command gets them without our help."""


class CommandNotFound(Exception):  # noqa: N818 - named as what happened
    """A command that does not exist, or that is not executable."""

    for_the_user = True


def check_command(command: Sequence[str]) -> None:
    """Raise CommandNotFound unless the command exists, before a cluster is started for it."""
    if shutil.which(command[0]) is None:
        raise CommandNotFound(
            f"{command[0]}: no such command, or not executable; write `kapsa devcluster run -- COMMAND ARGUMENT...`"
        )


async def run_command(cluster: DevCluster, command: Sequence[str]) -> int:
    """Start the cluster, run the command with KUBECONFIG set, stop the cluster. Return the command's exit code.

    As in a shell, that is 128 and the number of the signal for a command, or a start, that a signal ended.
    """
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _FORWARDED:
        loop.add_signal_handler(number, signals.put_nowait, number)
    try:
        interrupted = await _start(cluster, signals)
        if interrupted is not None:
            return 128 + interrupted
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, preexec_fn=_end_with_parent()
        )
        code = await _wait(cluster, process, signals)
        return code if code >= 0 else 128 - code
    finally:
        await cluster.stop()


def _end_with_parent() -> Callable[[], None] | None:
    """Return what makes a command end with this process, even if that is killed; None where it cannot."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)

    return set_death_signal


async def _start(cluster: DevCluster, signals: asyncio.Queue[signal.Signals]) -> signal.Signals | None:
    """Start the cluster. Return the signal that interrupted the start, if one did."""
    starting = asyncio.create_task(cluster.start())
    interrupted = asyncio.create_task(signals.get())
    try:
        await asyncio.wait([starting, interrupted], return_when=asyncio.FIRST_COMPLETED)
        if interrupted.done():
            return interrupted.result()
        await starting
        return None
    finally:
        interrupted.cancel()
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await starting


async def _wait(
    cluster: DevCluster, process: asyncio.subprocess.Process, signals: asyncio.Queue[signal.Signals]
) -> int:
    """Wait for the command while its signals are forwarded. A cluster that fails ends the command."""
    ended = asyncio.create_task(process.wait())
    forwarding = asyncio.create_task(_forward(signals, process))
    tasks: list[asyncio.Future[Any]] = [ended]
    if cluster.engine == "real":
        tasks.append(asyncio.create_task(cluster.real.wait_for_failure()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.terminate()
            await ended
            raise tasks[1].result()
        return ended.result()
    finally:
        for task in (forwarding, *tasks):
            task.cancel()


async def _forward(signals: asyncio.Queue[signal.Signals], process: asyncio.subprocess.Process) -> None:
    while True:
        number = await signals.get()
        if number in _FROM_THE_TERMINAL and _is_in_foreground():
            continue
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _is_in_foreground() -> bool:
    """Return whether this process belongs to the foreground group of a terminal."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.tcgetpgrp(stream.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    return False

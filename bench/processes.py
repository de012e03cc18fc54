"""Processes under measurement: CPU, memory, start and stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """The CPU and memory that a process has used so far."""

    cpu_seconds: float
    rss_mb: float
    peak_rss_mb: float


def usage(pid: int) -> Usage:
    """Read the CPU seconds and the current and peak resident memory of a process from `/proc`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
        rss_mb=int(status["VmRSS"].split()[0]) / 1024,
        peak_rss_mb=int(status["VmHWM"].split()[0]) / 1024,
    )


def children_seconds(pid: int) -> float:
    """Return the CPU seconds of a process's children that have exited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS


def stolen_seconds() -> float:
    """Return the CPU seconds that the host of a virtual machine gave to others so far."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / TICKS


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    pids = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


def family(pid: int) -> list[int]:
    """Return the descendants of a process."""
    return [one for child in children(pid) for one in (child, *family(child))]


@contextlib.contextmanager
def running(command: Sequence[str], *, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and stop it with SIGTERM, or SIGKILL if it does not exit, when the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

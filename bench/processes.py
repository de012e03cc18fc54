"""A process under measurement: its CPU seconds, its memory, and its end."""

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
    """What a process has used so far."""

    cpu_seconds: float
    rss_mb: float
    peak_rss_mb: float


def usage(pid: int) -> Usage:
    """Read `/proc`: user and system time, resident size now and at its highest."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
        rss_mb=int(status["VmRSS"].split()[0]) / 1024,
        peak_rss_mb=int(status["VmHWM"].split()[0]) / 1024,
    )


def stolen_seconds() -> float:
    """CPU seconds that a virtual machine's host has given to others so far, of all cores; 0 on a real machine."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / TICKS


def children(pid: int) -> list[int]:
    """The process's children, for a control plane whose parts are processes of their own."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def family(pid: int) -> list[int]:
    """The process's descendants."""
    return [one for child in children(pid) for one in (child, *family(child))]


@contextlib.contextmanager
def running(command: Sequence[str], *, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a peer; stop it by SIGTERM, and by SIGKILL when it does not go."""
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

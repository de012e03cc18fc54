"""The machine's processes, read from /proc because a minimal machine has no ps."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec


class Process(msgspec.Struct, frozen=True):
    """A process in the table."""

    pid: int
    parent: int
    group: int


def process_table() -> list[Process]:
    """Return all processes, except those that end meanwhile."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                processes.append(Process(int(entry.name), int(fields[1]), int(fields[2])))
    return processes

"""A disk that can be filled: a small file system of its own, which only root can mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LEFT = 6_000_000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


class SmallDisk:
    """A file system with little space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave the disk with a few megabytes."""
        free = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - _LEFT))

    def free(self) -> None:
        """Give back what was taken."""
        self._filler.unlink()


@contextmanager
def mounted_disk(directory: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk in a directory, and skip the test where that is not possible."""
    path = directory / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "tmpfs", path]
    mounted = subprocess.run(command, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)

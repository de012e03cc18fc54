"""Locks between processes, held on an open file or directory.

The kernel releases a lock when its holder exits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["directory_lock", "file_lock", "lock", "lock_if_free"]


def lock(descriptor: int) -> bool:
    """Lock an open file or directory until it is closed. Return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_if_free(path: Path) -> int | None:
    """Return an open descriptor that holds the lock, or None if it is taken or the path is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def directory_lock(path: Path) -> Iterator[None]:
    """Hold the lock of an existing directory.

    Blocks the thread, so use it for a few file operations at most.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is missing.

    Call `on_wait` before waiting for another process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if not lock(file.fileno()):
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

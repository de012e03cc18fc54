"""Locks between processes: held on an open file or directory, and gone with whoever held it, however that ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["held", "lock", "lock_if_free"]


def lock(descriptor: int) -> bool:
    """Lock what is open, until it is closed. False if somebody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_if_free(path: Path) -> int | None:
    """An open descriptor that holds this lock; None if somebody else does, or there is no such path."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold this lock for a moment, once whoever holds it is done. For what takes no longer than a few calls to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

"""A directory that holds the state of one cluster, for one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kapsa.devcluster.embedded.storage.journal import Journal
from kapsa.devcluster.embedded.storage.store import ObjectStore
from kapsa.devcluster.errors import DataInUse, DataNotWritable

__all__ = ["open_store"]

_JOURNAL, _LOCK = "journal", "lock"


@contextlib.contextmanager
def open_store(directory: Path) -> Iterator[ObjectStore]:
    """Yield the store that a directory holds, an empty one for a new directory. Its changes are kept there.

    Raises DataInUse while another process uses the directory, DataDamaged for a damaged journal, and DataNotWritable
    for a directory that cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise DataNotWritable(f"{directory} cannot be used as a data directory: {error.strerror}") from error
    if names and _LOCK not in names:
        raise DataNotWritable(
            f"{directory} is not empty and was not made by a devcluster; choose another directory"
        )
    with _locked(directory):
        journal = Journal(directory / _JOURNAL)
        try:
            store = journal.load()
        except OSError as error:
            raise DataNotWritable(f"{directory} cannot be used: {error.strerror or error}") from error
        with contextlib.closing(journal):
            yield store


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which the kernel releases when its process ends, however that happens."""
    try:
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        raise DataNotWritable(f"{directory} cannot be used as a data directory: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise DataInUse(
                f"{directory} is used by {holder}; stop it, or choose another directory"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} ({Path(sys.argv[0] or 'python').name})\n")
        file.flush()
        yield

"""The home of one run: a directory of its own, which is removed with the run, or by the next one.

It has the values of the release, some of them secret, and a manager that is killed cannot remove it. A lock that ends
with the process marks the homes in use; a run removes the others first.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kapsa.adapters.process.file_lock import lock, lock_if_free

__all__ = ["private_home"]

_PREFIX = "kapsa-helm-run-"


@contextlib.contextmanager
def private_home() -> Iterator[Path]:
    """Make a directory for one run that only this user can read, and remove it afterwards."""
    _remove_abandoned()
    home, descriptor = _locked_directory()
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(descriptor)


def _locked_directory() -> tuple[Path, int]:
    while True:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
            if lock(descriptor):
                return home, descriptor
            os.close(descriptor)  # another run took it for an abandoned one before it was locked


def _remove_abandoned() -> None:
    """Remove the homes of runs whose process has ended."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if home.is_symlink() or not _is_ours(home) or (descriptor := lock_if_free(home)) is None:
            continue
        shutil.rmtree(home, ignore_errors=True)
        os.close(descriptor)


def _is_ours(home: Path) -> bool:
    try:
        return home.stat().st_uid == os.geteuid()
    except OSError:
        return False

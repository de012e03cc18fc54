"""Files with secrets for git and ssh, which exist only as long as this process.

They are in memory: a process that is killed leaves no password on the disk. git's helpers read them through
`/proc` of this process. A system without such files gets private files in the directory of the run instead.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["SecretFiles", "write_private"]


class SecretFiles(contextlib.AbstractContextManager["SecretFiles"]):
    """The secrets of one run of git. They are gone when the block ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptors: list[int] = []

    def add(self, name: str, content: str) -> Path:
        """Store a secret, and return the path by which programs of the same user read it."""
        try:
            descriptor = os.memfd_create(f"kapsa-{name}", os.MFD_CLOEXEC)
        except (AttributeError, OSError):  # another system, or a sandbox that does not allow it
            path = self._directory / name
            write_private(path, content)
            return path
        self._descriptors.append(descriptor)
        os.fchmod(descriptor, 0o600)  # ssh refuses a key that others could read
        with open(descriptor, "w", closefd=False) as file:
            file.write(content)
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")

    def __exit__(self, *_: object) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def write_private(path: Path, content: str, *, mode: int = 0o600) -> None:
    """Write a file that only this user can read."""
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(content)

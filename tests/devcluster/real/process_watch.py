"""Waits for processes and files to be gone, with a timeout."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def is_running(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds} seconds"
        time.sleep(0.02)


def until_gone(pids: Iterable[int], *paths: Path) -> None:
    pids = list(pids)
    until(lambda: not any(is_running(pid) for pid in pids) and not any(path.exists() for path in paths))


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path

"""The process that owns a real control plane's processes and directory, so that neither outlives its parent.

It runs by path as a script (`python -I reaper.py BASE PREFIX`), on the standard library alone, so that it
starts in a few milliseconds whatever the rest of the package imports. It makes a directory under BASE, starts
processes on command, and kills and removes everything as soon as its standard input ends: a parent's
`close()`, its normal exit and its SIGKILL have that in common. Two more lines of defence: it checks each
second that its parent is still the same (a forked sibling may hold the pipe open), and on Linux the kernel
sends its children SIGKILL if it dies itself.

It reads commands and writes events, both as JSON lines:

    {"do": "start", "name": N, "argv": [...], "env": {...}, "log": PATH}  ->  {"event": "started", "name": N, "pid": P}
                                                                          or  {"event": "failed", "name": N, "error": E}
    {"do": "stop", "name": N}                                             ->  {"event": "exited", "name": N, "code": C}
    {"do": "remove", "path": PATH}      remove this file, too, at the end; no event
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OWNER_FILE = ".owner"
"""The file in a cluster's directory on which its reaper holds an exclusive lock."""

_PARENT_CHECK_SECONDS = 1.0
_UNOWNED_GRACE_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


def main(base: str, prefix: str) -> None:
    parent = os.getppid()
    remove_abandoned(Path(base), prefix)
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    owner = _take_ownership(directory)
    _emit({"event": "directory", "path": str(directory)})
    try:
        _serve(parent, Children(directory))
    finally:
        os.close(owner)


def remove_abandoned(base: Path, prefix: str) -> None:
    """Remove directories whose reaper was killed before it could do so itself."""
    for directory in base.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if directory.stat().st_uid == os.getuid() and not _is_owned(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_owned(directory: Path) -> bool:
    try:
        handle = os.open(directory / OWNER_FILE, os.O_RDWR)
    except FileNotFoundError:
        return time.time() - directory.stat().st_mtime < _UNOWNED_GRACE_SECONDS
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _take_ownership(directory: Path) -> int:
    # Locked first and renamed second: a sweep never sees the owner file of a live directory unlocked.
    unnamed = directory / f"{OWNER_FILE}.new"
    handle = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    unnamed.rename(directory / OWNER_FILE)
    return handle


class Children:
    """The supervised processes, by name, and everything to remove once they are gone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[Path] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._before_exec = _die_with_reaper()

    def execute(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "start":
                self._start(command["name"], command["argv"], command["env"], command["log"])
            case "stop":
                self._kill(command["name"])
            case "remove":
                self._files.append(Path(command["path"]))

    def _start(self, name: str, argv: list[str], env: dict[str, str], log: str) -> None:
        try:
            with Path(log).open("ab") as output:
                process = subprocess.Popen(  # noqa: S603 the parent decides what runs
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=env,
                    cwd=self._directory,
                    process_group=0,
                    preexec_fn=self._before_exec,  # noqa: PLW1509 this process has one thread
                )
        except OSError as error:
            _emit({"event": "failed", "name": name, "error": str(error)})
        else:
            self._running[name] = process
            _emit({"event": "started", "name": name, "pid": process.pid})

    def _kill(self, name: str) -> None:
        if (process := self._running.get(name)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def report_exits(self) -> None:
        for name, process in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[name]
                _emit({"event": "exited", "name": name, "code": code})

    def end(self) -> None:
        """Kill the processes and remove their files. No graceful stop is needed: the state is discarded."""
        for name in self._running:
            self._kill(name)
        for process in self._running.values():
            process.wait()
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        shutil.rmtree(self._directory, ignore_errors=True)


def _serve(parent: int, children: Children) -> None:
    wake_up = _wake_up_on_signals()
    commands = _CommandReader(sys.stdin.fileno())
    try:
        while not commands.ended and not wake_up.terminated and os.getppid() == parent:
            readable, _, _ = select.select([commands.handle, wake_up.handle], [], [], _PARENT_CHECK_SECONDS)
            if wake_up.handle in readable:
                wake_up.drain()
            if commands.handle in readable:
                for command in commands.read():
                    children.execute(command)
            children.report_exits()
    finally:
        children.end()


class _CommandReader:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.ended = False
        self._rest = b""

    def read(self) -> Iterator[dict[str, Any]]:
        received = os.read(self.handle, 65536)
        self.ended = not received
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            yield json.loads(line)


class _WakeUp:
    """Signals as a file descriptor, so that select() can wait for them along with the commands."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.terminated = False

    def drain(self) -> None:
        for number in os.read(self.handle, 4096):
            self.terminated = self.terminated or number != signal.SIGCHLD


def _wake_up_on_signals() -> _WakeUp:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return _WakeUp(reader)


def _die_with_reaper() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return set_death_signal


def _emit(event: dict[str, Any]) -> None:
    # The parent may be gone already; the clean-up goes on without it.
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

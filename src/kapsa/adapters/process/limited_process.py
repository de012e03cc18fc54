"""Running a program of others (git, helm, kubectl) on input that nobody vouches for, within limits.

The program gets an environment of its own, no terminal, a time limit, limits on what it prints, keeps in memory and writes
to disk, and a process group that ends as a whole: at a limit, when whoever waits for it is cancelled, and always at the end.

It runs from a thread. That keeps the event loop free of pipes, and makes virtual time stand still meanwhile, so that tests
in virtual time can use the real programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from kapsa.adapters.errors import ExternalFailure, LimitExceeded, TimedOut

__all__ = ["FinishedProcess", "ProcessLimits", "private_environment", "run_program"]

_MIB = 1024 * 1024
_LOOK_EVERY = 0.05
"""Seconds between two looks at how much memory and disk a program uses."""
_MEASURE_EVERY = 0.5
_GONE_WITHIN = 1.0
"""Seconds within which a killed process is gone."""
_COMPLAINT_LIMIT = 256 * 1024
_AT_ONCE = 16

_INHERITED = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a program may go."""

    seconds: float = 60.0
    """How long it may take."""
    output_bytes: int = 64 * _MIB
    """How much it may print."""
    memory_bytes: int = 1024 * _MIB
    """How much memory it may hold at a time."""
    file_bytes: int = 2048 * _MIB
    """How large a single file that it writes may be."""


class FinishedProcess(msgspec.Struct, frozen=True):
    """How a program ended."""

    code: int
    output: bytes
    complaint: str
    """What it wrote to stderr, or the end of it."""


_threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="program")


def private_environment(home: Path, *, network: bool = False) -> dict[str, str]:
    """An environment with nothing of this process in it: a HOME of its own, plain C messages, no cluster, no proxy.

    With `network` the machine's proxies and trusted certificates are handed on. Without it every proxy is a closed port, so
    that a program which should not use the network finds none.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "TMPDIR": str(home),
        "LC_ALL": "C",
        "KUBECONFIG": str(home / "no-kubeconfig"),
    }
    if network:
        environment |= {name: os.environ[name] for name in _INHERITED if name in os.environ}
    else:
        closed = "http://127.0.0.1:1"
        environment |= {
            "HTTP_PROXY": closed,
            "HTTPS_PROXY": closed,
            "http_proxy": closed,
            "https_proxy": closed,
        }
    return environment


async def run_program(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    directory: Path,
    limits: ProcessLimits,
    stdin: bytes = b"",
    output_file: Path | None = None,
    measure: Callable[[], int] | None = None,
    measured_limit: int = 0,
) -> FinishedProcess:
    """Run a program to its end, whatever its exit code is.

    `output_file` takes what it prints instead of memory. `measure` is asked now and then, from another thread, how many
    bytes the program has put on disk, and once more when it has ended; more than `measured_limit` ends it.

    :raises TimedOut: it took too long.
    :raises LimitExceeded: it passed one of the other limits.
    :raises ExternalFailure: it could not be started.
    """
    run = _Run(command, environment, directory, limits, stdin, output_file, measure, measured_limit)
    waiting = asyncio.get_running_loop().run_in_executor(_threads, run.to_the_end)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        run.cancel()
        # Whoever cancels may remove the program's directory next: nothing of it may be left by then.
        with contextlib.suppress(Exception):
            await asyncio.shield(waiting)
        raise


class _Cancelled(Exception):  # noqa: N818 - named as what happened
    """Nobody waits for the program any more."""


class _Run:
    """One run of a program, in a thread."""

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        directory: Path,
        limits: ProcessLimits,
        stdin: bytes,
        output_file: Path | None,
        measure: Callable[[], int] | None,
        measured_limit: int,
    ) -> None:
        self._command = [str(part) for part in command]
        self._name = Path(self._command[0]).name
        self._environment = dict(environment)
        self._directory = directory
        self._limits = limits
        self._stdin = stdin
        self._output_file = output_file
        self._measure = measure
        self._measured_limit = measured_limit
        self._output = bytearray()
        self._complaint = bytearray()
        self._printed = 0
        self._next_measure = 0.0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def to_the_end(self) -> FinishedProcess:
        if self._cancelled.is_set():
            raise _Cancelled
        with contextlib.ExitStack() as opened:
            target = opened.enter_context(self._output_file.open("wb")) if self._output_file else None
            source = opened.enter_context(_as_file(self._stdin)) if self._stdin else subprocess.DEVNULL
            try:
                process = subprocess.Popen(  # noqa: S603 - argument lists only, never a shell
                    self._command,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self._environment,
                    cwd=self._directory,
                    start_new_session=True,
                )
            except OSError as error:
                raise ExternalFailure(f"{self._name} can't be started: {error.strerror}") from error
            try:
                self._limit_files(process.pid)
                self._follow(process, target)
                code = process.wait()
                self._weigh()
                return FinishedProcess(code, bytes(self._output), self._complaint.decode("utf-8", "replace"))
            finally:
                _end(process)

    def _limit_files(self, pid: int) -> None:
        # Raced by a program that writes at once, which does no harm: what counts is measured again.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            limit = self._limits.file_bytes
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))

    def _follow(self, process: subprocess.Popen[bytes], target: IO[bytes] | None) -> None:
        deadline = time.monotonic() + self._limits.seconds
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while True:
                # Asked before reading: what the program printed until it ended is then still to be read.
                ended = process.poll() is not None
                ready = selector.select(0 if ended else _LOOK_EVERY)
                for key, _ in ready:
                    chunk = os.read(key.fd, 65536)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        self._take(chunk, target)
                    else:
                        self._complaint = (self._complaint + chunk)[-_COMPLAINT_LIMIT:]
                # Once it has ended nothing more counts: what it left behind may hold the pipes open for ever.
                if ended and not ready:
                    return
                self._look(process.pid, deadline)

    def _take(self, chunk: bytes, target: IO[bytes] | None) -> None:
        self._printed += len(chunk)
        if self._printed > self._limits.output_bytes:
            raise LimitExceeded(f"{self._name} printed more than {_size(self._limits.output_bytes)}")
        if target is not None:
            target.write(chunk)
        else:
            self._output += chunk

    def _look(self, pid: int, deadline: float) -> None:
        now = time.monotonic()
        if self._cancelled.is_set():
            raise _Cancelled
        if now > deadline:
            raise TimedOut(f"{self._name} took longer than {self._limits.seconds:g} s")
        if _resident_bytes(pid) > self._limits.memory_bytes:
            raise LimitExceeded(f"{self._name} needed more than {_size(self._limits.memory_bytes)} of memory")
        if self._measure is not None and now >= self._next_measure:
            self._next_measure = now + _MEASURE_EVERY
            self._weigh()

    def _weigh(self) -> None:
        if self._measure is not None and self._measure() > self._measured_limit:
            raise LimitExceeded(f"{self._name} wrote more than {_size(self._measured_limit)}")


def _as_file(content: bytes) -> IO[bytes]:
    """A file with this content and no name: a pipe would have to be fed while the output is read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.seek(0)
    return file


_PAGE = resource.getpagesize()


def _resident_bytes(pid: int) -> int:
    """What a program holds in memory, with all that it started: git leaves the work to others."""
    total, waiting = 0, [pid]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        try:
            total += int((process / "statm").read_bytes().split()[1]) * _PAGE
            waiting += map(int, (process / "task" / process.name / "children").read_bytes().split())
        except (OSError, IndexError, ValueError):
            continue  # it has ended, or this system does not tell
    return total


def _end(process: subprocess.Popen[Any]) -> None:
    """Make sure that nothing of the program is left. Its group goes even if it has ended itself: it may have left others."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
    # What the program had started is not ours to wait for, and a killed process still takes a moment to go. The limit is for
    # a machine whose first process does not reap: there the dead stay in the table.
    deadline = time.monotonic() + _GONE_WITHIN
    while _group_exists(process.pid) and time.monotonic() < deadline:
        time.sleep(0.005)


def _group_exists(group: int) -> bool:
    with contextlib.suppress(PermissionError):  # it exists, under another user
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def _size(count: int) -> str:
    return f"{count / _MIB:g} MB" if count >= _MIB else f"{count} bytes"

"""A process within limits: git, helm or kubectl on input that is not trusted.

The program gets its own environment, no terminal, and limits on its time, output, memory and files. Its
process group is killed when a limit is exceeded, when the caller is cancelled, and always at the end.

It is started from a thread. That keeps pipes out of the event loop, and virtual time stands still while the
program runs, so that tests on virtual time can use real programs.
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
_POLL_SECONDS = 0.05
"""Seconds between two checks of the memory and disk that a program uses."""
_MEASURE_SECONDS = 0.5
_EXIT_SECONDS = 1.0
"""Seconds to wait for a killed process group to exit."""
_STDERR_LIMIT = 256 * 1024
_MAX_THREADS = 16

_INHERITED = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a program may use."""

    seconds: float = 60.0
    """Run time in seconds."""
    output_bytes: int = 64 * _MIB
    """Bytes of output."""
    memory_bytes: int = 1024 * _MIB
    """Bytes of resident memory, including its child processes."""
    file_bytes: int = 2048 * _MIB
    """Bytes of a single file that it writes."""


class FinishedProcess(msgspec.Struct, frozen=True):
    """The result of a program."""

    code: int
    output: bytes
    stderr: str
    """The end of its stderr."""


_threads = ThreadPoolExecutor(max_workers=_MAX_THREADS, thread_name_prefix="program")


def inherited_environment() -> dict[str, str]:
    """Return the environment of this process without the settings of Kapsa, some of which are secret."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAPSA_")}


def private_environment(home: Path, *, network: bool = False) -> dict[str, str]:
    """Return an environment without the variables of this process: its own HOME, the C locale, no kubeconfig.

    With `network`, the proxies and trusted certificates of the machine are passed on. Without it, each proxy
    is a closed port, so that requests fail.
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
    """Run a program and wait for its exit, whatever its exit code.

    The output goes to `output_file` if it is given. `measure` returns the bytes that the program has written
    to disk. It is called regularly from another thread, and the program is killed when the result exceeds
    `measured_limit`.

    Raises `TimedOut` when the program takes too long, `LimitExceeded` when it exceeds another limit, and
    `ExternalFailure` when it cannot be started.
    """
    run = _Run(command, environment, directory, limits, stdin, output_file, measure, measured_limit)
    waiting = asyncio.get_running_loop().run_in_executor(_threads, run.wait)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        run.cancel()
        # The caller may remove the program's directory next: wait until the program has exited.
        with contextlib.suppress(Exception):
            await asyncio.shield(waiting)
        raise


class _Cancelled(Exception):  # noqa: N818 - named as what happened
    """The caller was cancelled."""


class _Run:
    """One run of a program, from a thread."""

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
        self._stderr = bytearray()
        self._printed = 0
        self._next_measure = 0.0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def wait(self) -> FinishedProcess:
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
                raise ExternalFailure(f"{self._name} cannot be started: {error.strerror}") from error
            try:
                self._limit_files(process.pid)
                self._follow(process, target)
                code = process.wait()
                self._check_disk()
                return FinishedProcess(code, bytes(self._output), self._stderr.decode("utf-8", "replace"))
            finally:
                _kill(process)

    def _limit_files(self, pid: int) -> None:
        # The program may write before the limit applies. That is harmless: `measure` checks the size again.
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
                # Checked before reading, so that all output up to the exit is still read.
                exited = process.poll() is not None
                ready = selector.select(0 if exited else _POLL_SECONDS)
                for key, _ in ready:
                    chunk = os.read(key.fd, 65536)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        self._take(chunk, target)
                    else:
                        self._stderr = (self._stderr + chunk)[-_STDERR_LIMIT:]
                # After the exit, a child process that is left may hold the pipes open forever.
                if exited and not ready:
                    return
                self._check(process.pid, deadline)

    def _take(self, chunk: bytes, target: IO[bytes] | None) -> None:
        self._printed += len(chunk)
        if self._printed > self._limits.output_bytes:
            raise LimitExceeded(f"{self._name} printed more than {_size(self._limits.output_bytes)}")
        if target is not None:
            target.write(chunk)
        else:
            self._output += chunk

    def _check(self, pid: int, deadline: float) -> None:
        now = time.monotonic()
        if self._cancelled.is_set():
            raise _Cancelled
        if now > deadline:
            raise TimedOut(f"{self._name} took longer than {self._limits.seconds:g} s")
        if _resident_bytes(pid) > self._limits.memory_bytes:
            raise LimitExceeded(f"{self._name} needed more than {_size(self._limits.memory_bytes)} of memory")
        if self._measure is not None and now >= self._next_measure:
            self._next_measure = now + _MEASURE_SECONDS
            self._check_disk()

    def _check_disk(self) -> None:
        if self._measure is not None and self._measure() > self._measured_limit:
            raise LimitExceeded(f"{self._name} wrote more than {_size(self._measured_limit)}")


def _as_file(content: bytes) -> IO[bytes]:
    """Return an unnamed file with this content. A pipe would have to be fed while the output is read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.seek(0)
    return file


_PAGE = resource.getpagesize()


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants.

    git does most of its work in child processes.
    """
    total, waiting = 0, [pid]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        try:
            total += int((process / "statm").read_bytes().split()[1]) * _PAGE
            waiting += map(int, (process / "task" / process.name / "children").read_bytes().split())
        except (OSError, IndexError, ValueError):
            continue  # it has exited, or this system has no /proc
    return total


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kill the process group. Even after the program has exited, child processes may be left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
    # Child processes of the program cannot be waited for, and a killed process takes a moment to exit. The deadline is for a
    # machine whose init does not reap: zombies stay in the process table there.
    deadline = time.monotonic() + _EXIT_SECONDS
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

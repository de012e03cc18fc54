"""Supervised processes: they cannot outlive this one, and how they ended is reported.

`Supervisor` is the parent's side. The processes are children of a reaper (`reaper.py`), a process of its own.
"""

import asyncio
import contextlib
import errno
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kapsa.devcluster.errors import ComponentFailed, DevClusterError
from kapsa.devcluster.real import reaper

T = TypeVar("T")

DIRECTORY_PREFIX = "kapsa-controlplane-"

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 a tmpfs; the directories made there are private
_SHARED_MEMORY_NEEDED = 1 << 30
_END_SECONDS = 15.0
_TAIL_BYTES = 64 * 1024


class Component:
    """A supervised process."""

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name = name
        self.pid = pid
        self.log = log
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Resolves to the exit code; a negative one is the number of a signal."""

    @property
    def running(self) -> bool:
        return not self.exited.done()

    def failure(self) -> ComponentFailed:
        """Return the error that says why it ended, in the words of its own log."""
        code = self.exited.result() if self.exited.done() else None
        state = "is not ready" if code is None else f"ended with {_describe(code)}"
        reason = last_error_line(self.log)
        return ComponentFailed(
            f"{self.name} {state}: {reason}" if reason else f"{self.name} {state}, and its log is empty"
        )


class Supervisor:
    """A reaper process and its directory; both are gone after `close()`, or when this process dies."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self.directory = directory
        self._process = process
        self._components: dict[str, Component] = {}
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read_events(), name="devcluster-supervisor")

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, base: Path | None = None) -> "Supervisor":
        base = base or scratch_directory()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            reaper.__file__,
            str(base),
            DIRECTORY_PREFIX,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            return cls(process, await _greeting(process, base))
        except BaseException:
            # No caller can close it later, so it ends here, also on cancellation.
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
            raise

    async def run(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Component:
        """Start a process; its output goes to `<name>.log` in the directory."""
        log = self.directory / f"{name}.log"
        self._answers[name] = answered = asyncio.get_running_loop().create_future()
        await self._send({"do": "start", "name": name, "argv": list(argv), "env": dict(env), "log": str(log)})
        answer = await answered
        if answer["event"] == "failed":
            raise ComponentFailed(f"cannot start {name}: {answer['error']}")
        return self._components[name]

    async def stop(self, name: str) -> None:
        """Kill one process and wait until it is gone."""
        component = self._components[name]
        if component.running:
            await self._send({"do": "stop", "name": name})
            await asyncio.shield(component.exited)

    async def remove_at_end(self, path: Path) -> None:
        """Have this file, given by its absolute path, removed with the directory."""
        await self._send({"do": "remove", "path": str(path)})

    async def close(self) -> None:
        """End every process and remove the directory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader
        # The directory is still there only if the reaper itself was killed.
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _send(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._process.stdin.drain()
        # Writing to a dead reaper may seem to succeed for a while; the end of its output is certain.
        if self._reader.done():
            raise DevClusterError(
                "the process that supervises the cluster was killed; start the cluster again"
            )

    async def _read_events(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._handle(msgspec.json.decode(line))
        for component in self._components.values():
            _resolve(component.exited, -9)
        for answer in self._answers.values():
            _resolve(
                answer, {"event": "failed", "error": "the process that supervises the cluster was killed"}
            )

    def _handle(self, event: Mapping[str, Any]) -> None:
        name = event["name"]
        if event["event"] == "exited":
            _resolve(self._components[name].exited, event["code"])
            return
        if event["event"] == "started":
            self._components[name] = Component(name, event["pid"], self.directory / f"{name}.log")
        _resolve(self._answers.pop(name), event)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    # The task that waits for it may have been cancelled, and the future with it.
    if not future.done():
        future.set_result(result)


async def _greeting(process: asyncio.subprocess.Process, base: Path) -> Path:
    """Return the directory that a new reaper made."""
    assert process.stdout is not None
    assert process.stderr is not None
    if line := await process.stdout.readline():
        return Path(msgspec.json.decode(line)["path"])
    errors = (await process.stderr.read()).decode(errors="replace").strip().splitlines() or [
        "no reason given"
    ]
    raise DevClusterError(f"cannot create a directory for the cluster in {base}: {errors[-1]}")


def scratch_directory() -> Path:
    """Return the parent of cluster directories: in memory if there is room, else the temporary directory."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_SHARED_MEMORY).free >= _SHARED_MEMORY_NEEDED:
            with tempfile.TemporaryFile(dir=_SHARED_MEMORY):
                return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


def last_error_line(log: Path) -> str:
    """Return the line of a log that best explains its end: the last error, or else the last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = [
                line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()
            ]
    except OSError as error:
        return "no space left on device" if error.errno == errno.ENOSPC else ""
    errors = [line for line in lines if _ERROR.search(line)]
    return _shorten((errors or lines or [""])[-1])


_ERROR = re.compile(
    r'^[EF]\d{4} |^(?i:error)\b|"level":"(?:error|fatal|panic)"|"error":"|level=(?:ERROR|error)|^panic:|^fatal'
)
_KLOG_HEADER = re.compile(r"^[IWEF]\d{4} \S+\s+\d+ (\S+\] )?")


def _shorten(line: str, limit: int = 400) -> str:
    if line.startswith("{"):
        with contextlib.suppress(msgspec.DecodeError):
            entry = msgspec.json.decode(line)
            line = ": ".join(str(entry[key]) for key in ("msg", "error") if key in entry)
    line = _KLOG_HEADER.sub("", line)
    return line if len(line) <= limit else f"{line[:limit]}…"


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"

"""The parent's side of the supervisor: start processes that cannot outlive us, and learn how they ended."""

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
    """One supervised process."""

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name = name
        self.pid = pid
        self.log = log
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Set to the exit code; negative is a signal's number."""

    @property
    def running(self) -> bool:
        return not self.exited.done()

    def failure(self) -> ComponentFailed:
        """Why it ended, in the words of its own log."""
        code = self.exited.result() if self.exited.done() else None
        state = "is not ready" if code is None else f"ended with {_describe(code)}"
        reason = telling_line(self.log)
        return ComponentFailed(
            f"{self.name} {state}: {reason}" if reason else f"{self.name} {state}, and its log is empty"
        )


class Supervisor:
    """A supervisor process with a directory of its own; both are gone after `close()`, or after our death."""

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
            # Not ours to close later, so it ends here; cancellation counts.
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
            raise

    async def run(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Component:
        """Start a process; what it prints goes to `<name>.log` in the directory."""
        log = self.directory / f"{name}.log"
        self._answers[name] = answered = asyncio.get_running_loop().create_future()
        await self._tell({"do": "start", "name": name, "argv": list(argv), "env": dict(env), "log": str(log)})
        answer = await answered
        if answer["event"] == "refused":
            raise ComponentFailed(f"{name} cannot be started: {answer['error']}")
        return self._components[name]

    async def stop(self, name: str) -> None:
        """Kill one process and wait until it is gone."""
        component = self._components[name]
        if component.running:
            await self._tell({"do": "stop", "name": name})
            await asyncio.shield(component.exited)

    async def remove_at_end(self, path: Path) -> None:
        """Have this file, given by its absolute path, removed with the directory."""
        await self._tell({"do": "remove", "path": str(path)})

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
        # Only has work to do where the supervisor itself was killed.
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _tell(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._process.stdin.drain()
        # Writing to a dead supervisor may seem to succeed for a while; that it stopped talking is certain.
        if self._reader.done():
            raise DevClusterError(
                "the supervisor of the cluster's processes was killed; start the cluster again"
            )

    async def _read_events(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._note(msgspec.json.decode(line))
        for component in self._components.values():
            _settle(component.exited, -9)
        for answer in self._answers.values():
            _settle(answer, {"event": "refused", "error": "the supervisor was killed"})

    def _note(self, event: Mapping[str, Any]) -> None:
        name = event["name"]
        if event["event"] == "exited":
            _settle(self._components[name].exited, event["code"])
            return
        if event["event"] == "started":
            self._components[name] = Component(name, event["pid"], self.directory / f"{name}.log")
        _settle(self._answers.pop(name), event)


def _settle(future: asyncio.Future[T], result: T) -> None:
    # Who waited for it may have been cancelled, and the future with them.
    if not future.done():
        future.set_result(result)


async def _greeting(process: asyncio.subprocess.Process, base: Path) -> Path:
    """The directory a new supervisor made."""
    assert process.stdout is not None
    assert process.stderr is not None
    if line := await process.stdout.readline():
        return Path(msgspec.json.decode(line)["path"])
    complaint = (await process.stderr.read()).decode(errors="replace").strip().splitlines() or [
        "no reason given"
    ]
    raise DevClusterError(f"cannot make a directory for the cluster in {base}: {complaint[-1]}")


def scratch_directory() -> Path:
    """Where cluster directories are made: in memory where there is room for it, else in the temporary directory."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_SHARED_MEMORY).free >= _SHARED_MEMORY_NEEDED:
            with tempfile.TemporaryFile(dir=_SHARED_MEMORY):
                return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


def telling_line(log: Path) -> str:
    """The line of a log that tells most about its end: the last error, else the last line at all."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = [
                line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()
            ]
    except OSError as error:
        return "no space left on device" if error.errno == errno.ENOSPC else ""
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    return _shorten((complaints or lines or [""])[-1])


_COMPLAINT = re.compile(
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

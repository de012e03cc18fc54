"""Processes that report on standard output in lines of JSON, and end when their standard input does.

They end with the process that started them, even if that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Report = TypeVar("Report")

_STOP_SECONDS = 30.0
_LONGEST_LINE = 64 * 1024 * 1024


class ChildFailed(RuntimeError):  # noqa: N818 - named as what happened
    """A process ended, or did not report in time."""


class ChildProcess:
    """A running module of ours."""

    def __init__(self, process: asyncio.subprocess.Process, name: str, log: Path) -> None:
        self._process = process
        self._name = name
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def report(self, kind: type[Report], seconds: float) -> Report:
        """Return its next report. Raises ChildFailed with its last words if there is none in time."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except TimeoutError:
            raise ChildFailed(
                f"{self._name} did not report within {seconds:.0f} s: {self._last_words()}"
            ) from None
        if not line:
            code = await self._process.wait()
            raise ChildFailed(f"{self._name} ended with code {code}: {self._last_words()}")
        return msgspec.json.decode(line, type=kind)

    def _last_words(self) -> str:
        return last_line(self._log) or "its log is empty"


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-2000:] if lines else ""


@contextlib.asynccontextmanager
async def child_process(module: str, *arguments: object, log: Path) -> AsyncIterator[ChildProcess]:
    """Run a module of ours, with its errors in a log, until the block ends."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *map(str, arguments)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_LONGEST_LINE,
        )
    try:
        yield ChildProcess(process, module.rpartition(".")[2], log)
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def send(report: Any) -> None:
    """Report to the process that started this one."""
    os.write(1, msgspec.json.encode(report) + b"\n")


async def announce(report: Any) -> None:
    """Report, and wait until the standard input ends."""
    send(report)
    await input_end()


async def input_end() -> None:
    """Wait until the standard input ends, because the process that started this one has ended, or wants it to end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()

"""Processes next to the managers: a failure is reported with its cause, and none is left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from bench.fleet.child_process import ChildFailed, child_process
from bench.fleet.repository_process import RepositoryAddresses

REPOSITORY = Path(__file__).resolve().parents[3]
SILENT = "json.tool"
"""A module that reads its standard input to the end and reports nothing."""


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_a_process_reports_and_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    async with child_process("bench.fleet.repository_process", 3, 3, log=tmp_path / "log") as process:
        addresses = await process.report(RepositoryAddresses, 100)
        assert addresses.webhook.url.startswith("https://127.0.0.1:")
        assert is_running(process.pid)
    assert not is_running(process.pid)


async def test_a_process_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async with child_process(SILENT, tmp_path / "missing", log=tmp_path / "log") as process:
        with pytest.raises(ChildFailed, match=r"tool ended with code \d: .*missing"):
            await process.report(list[str], 100)


async def test_a_process_that_reports_nothing_in_time_is_reported(tmp_path: Path) -> None:
    async with child_process(SILENT, log=tmp_path / "log") as process:
        with pytest.raises(ChildFailed, match="tool did not report within 0 s: its log is empty"):
            await process.report(list[str], 0.01)
    assert not is_running(process.pid)


async def test_an_interrupted_block_leaves_no_process(tmp_path: Path) -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with child_process(SILENT, log=tmp_path / "log") as process:
            started.set_result(process.pid)
            await process.report(list[str], 1000)

    task = asyncio.create_task(work())
    pid = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pid)

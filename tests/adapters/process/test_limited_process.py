"""External programs, run within limits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalFailure, LimitExceeded, TimedOut
from kapsa.adapters.process.limited_process import (
    FinishedProcess,
    ProcessLimits,
    private_environment,
    run_program,
)
from tests.eventually import eventually

MIB = 1024 * 1024


async def shell(
    directory: Path, script: str, limits: ProcessLimits | None = None, **more: Any
) -> FinishedProcess:
    return await run_program(
        ["/bin/sh", "-c", script],
        environment=private_environment(directory),
        directory=directory,
        limits=limits or ProcessLimits(seconds=20),
        **more,
    )


async def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_output_stderr_and_the_exit_code_are_returned(tmp_path: Path) -> None:
    finished = await shell(tmp_path, "cat; echo sorry >&2; exit 3", stdin=b"given")
    assert (finished.code, finished.output, finished.stderr) == (3, b"given", "sorry\n")


async def test_output_can_go_to_a_file(tmp_path: Path) -> None:
    finished = await shell(tmp_path, "echo much", output_file=tmp_path / "printed")
    assert (finished.output, (tmp_path / "printed").read_bytes()) == (b"", b"much\n")


async def test_its_environment_is_private_and_without_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-them")
    monkeypatch.setenv("KUBECONFIG", "/etc/kubernetes/admin.conf")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    seen = (await shell(tmp_path, "env")).output.decode()
    assert "not-for-them" not in seen
    assert "admin.conf" not in seen
    assert "proxy.example.com" not in seen
    assert f"HOME={tmp_path}\n" in seen
    assert private_environment(tmp_path, network=True)["HTTPS_PROXY"] == "http://proxy.example.com:3128"


@pytest.mark.parametrize(
    ("script", "limits", "error"),
    [
        ("sleep 60", ProcessLimits(seconds=0.3), TimedOut),
        ("while :; do echo more; done", ProcessLimits(seconds=20, output_bytes=MIB), LimitExceeded),
        ("exec tail -c 300000000 /dev/zero", ProcessLimits(seconds=20, memory_bytes=50 * MIB), LimitExceeded),
        (
            "tail -c 300000000 /dev/zero; exit 0",
            ProcessLimits(seconds=20, memory_bytes=50 * MIB),
            LimitExceeded,
        ),
    ],
)
async def test_a_program_past_a_limit_is_killed(
    tmp_path: Path, script: str, limits: ProcessLimits, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await shell(tmp_path, script, limits)


async def test_a_program_that_fills_the_disk_is_killed(tmp_path: Path) -> None:
    written = tmp_path / "written"

    def measure() -> int:
        return written.stat().st_size if written.exists() else 0

    with pytest.raises(LimitExceeded, match="wrote more"):
        await shell(
            tmp_path,
            "while :; do head -c 100000 /dev/zero >> written; done",
            measure=measure,
            measured_limit=MIB,
        )


async def test_a_program_that_fills_the_disk_between_two_checks_is_detected_at_its_end(
    tmp_path: Path,
) -> None:
    sizes: list[int] = []

    def measure() -> int:
        # Nothing at the first look, whenever that comes: what the program has written by then is as good as later.
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("written")) if sizes else 0)
        return sizes[-1]

    with pytest.raises(LimitExceeded, match="wrote more"):
        await shell(tmp_path, "head -c 2000000 /dev/zero > written", measure=measure, measured_limit=MIB)


async def test_a_file_larger_than_allowed_is_not_written(tmp_path: Path) -> None:
    limits = ProcessLimits(seconds=20, file_bytes=MIB)
    finished = await shell(tmp_path, "sleep 0.2; head -c 3000000 /dev/zero > large", limits)
    assert finished.code != 0
    assert (tmp_path / "large").stat().st_size <= MIB


async def test_child_processes_are_killed_with_the_program(tmp_path: Path) -> None:
    await shell(tmp_path, "sleep 60 & echo $! > left; exit 0")
    pid = int((tmp_path / "left").read_text())
    await eventually(lambda: alive(pid), lambda seen: not seen, "its child has ended")


async def test_a_program_whose_caller_is_cancelled_is_killed(tmp_path: Path) -> None:
    task = asyncio.create_task(shell(tmp_path, "echo $$ > started; exec sleep 60"))

    async def started() -> str:
        return (tmp_path / "started").read_text() if (tmp_path / "started").exists() else ""

    pid = int(await eventually(started, bool, "the program has started"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await alive(pid)


async def test_a_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ExternalFailure, match="nothing-here cannot be started"):
        await run_program(
            [tmp_path / "nothing-here"],
            environment=dict(os.environ),
            directory=tmp_path,
            limits=ProcessLimits(),
        )

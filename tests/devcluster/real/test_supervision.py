"""Supervised processes and their directory end with their parent, whatever ends it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kapsa.devcluster.errors import ComponentFailed, DevClusterError
from kapsa.devcluster.real.supervisor import DIRECTORY_PREFIX, Supervisor, last_error_line
from tests.devcluster.real.process_watch import is_empty, is_running, until, until_gone
from tests.process_table import process_table

ENV = dict(os.environ)
SLEEP = ["sleep", "600"]

PARENT = """
import asyncio, json, os, sys, time
from pathlib import Path
from kapsa.devcluster.real.supervisor import Supervisor

async def main():
    supervisor = await Supervisor.start(Path(sys.argv[1]))
    await supervisor.remove_at_end(Path(sys.argv[1]) / "extra")
    one = await supervisor.run("one", ["sh", "-c", "sleep 600 & sleep 600"], dict(os.environ))
    two = await supervisor.run("two", ["sleep", "600"], dict(os.environ))
    print(json.dumps({"directory": str(supervisor.directory), "pids": [one.pid, two.pid]}), flush=True)
    if sys.argv[2] == "fork" and os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_close_ends_every_process_and_removes_the_directory(tmp_path: Path) -> None:
    supervisor = await Supervisor.start(tmp_path)
    component = await supervisor.run("sleeper", SLEEP, ENV)
    assert is_running(component.pid)
    assert supervisor.directory.parent == tmp_path
    assert supervisor.directory.stat().st_mode & 0o777 == 0o700
    await supervisor.close()
    assert not is_running(component.pid)
    assert component.exited.result() == -signal.SIGKILL
    assert is_empty(tmp_path)


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_parent_leaves_no_process_and_no_directory(tmp_path: Path, how: str) -> None:
    """With `fork`, a child of the parent outlives it for a while, and with it the pipe to the reaper."""
    (tmp_path / "extra").touch()
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path, how], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        # The children of a child end, too: the whole process group.
        until(lambda: len(_group(started["pids"][0])) == 3)
        group = _group(started["pids"][0])
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        until_gone([*group, started["pids"][1]], Path(started["directory"]), tmp_path / "extra")


def _group(leader: int) -> list[int]:
    return [process.pid for process in process_table() if process.group == leader]


async def test_processes_end_with_a_killed_reaper_and_close_removes_the_directory(
    tmp_path: Path,
) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only the Linux kernel kills children with their parent")
    supervisor = await Supervisor.start(tmp_path)
    component = await supervisor.run("sleeper", SLEEP, ENV)
    os.kill(supervisor.pid, signal.SIGKILL)
    assert await component.exited == -signal.SIGKILL
    until(lambda: not is_running(component.pid))
    with pytest.raises(
        (ComponentFailed, DevClusterError), match="the process that supervises the cluster was killed"
    ):
        await supervisor.run("another", SLEEP, ENV)
    await supervisor.close()
    assert is_empty(tmp_path)


async def test_the_directory_of_a_killed_reaper_is_removed_by_the_next(tmp_path: Path) -> None:
    first = await Supervisor.start(tmp_path)
    living = await Supervisor.start(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_running(first.pid))
    fresh = tmp_path / f"{DIRECTORY_PREFIX}justmade"
    fresh.mkdir()
    old = tmp_path / f"{DIRECTORY_PREFIX}longago"
    old.mkdir()
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    assert first.directory.exists()
    third = await Supervisor.start(tmp_path)
    assert not first.directory.exists()
    assert not old.exists(), "it never got an owner: its reaper died before"
    assert fresh.exists(), "its reaper may be about to take ownership"
    assert living.directory.exists()
    for supervisor in (first, living, third):
        await supervisor.close()


async def test_stop_ends_one_process_and_its_name_can_run_again(tmp_path: Path) -> None:
    supervisor = await Supervisor.start(tmp_path)
    first = await supervisor.run("sleeper", SLEEP, ENV)
    other = await supervisor.run("other", SLEEP, ENV)
    await supervisor.stop("sleeper")
    assert not first.running
    assert other.running
    second = await supervisor.run("sleeper", SLEEP, ENV)
    assert second.running
    await supervisor.close()


async def test_an_exit_is_reported_with_the_last_error_of_the_log(tmp_path: Path) -> None:
    supervisor = await Supervisor.start(tmp_path)
    script = "echo I1115 10:00:00.000000 1 a.go:1] fine; echo E1115 10:00:00.0 1 a.go:2] it broke; echo bye; exit 3"
    component = await supervisor.run("kube-thing", ["sh", "-c", script], ENV)
    assert await component.exited == 3
    assert str(component.failure()) == "kube-thing ended with exit code 3: it broke"
    await supervisor.close()


async def test_a_program_that_cannot_be_executed_is_reported_in_one_line(tmp_path: Path) -> None:
    supervisor = await Supervisor.start(tmp_path)
    with pytest.raises(
        ComponentFailed, match=r"cannot start etcd: .*No such file or directory.*nowhere/etcd"
    ):
        await supervisor.run("etcd", ["/nowhere/etcd"], ENV)
    await supervisor.close()


async def test_a_missing_base_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match=r"cannot create a directory for the cluster in .*nowhere"):
        await Supervisor.start(tmp_path / "nowhere")


async def test_close_completes_if_the_caller_is_cancelled(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def use() -> None:
        supervisor = await Supervisor.start(tmp_path)
        try:
            await supervisor.run("sleeper", SLEEP, ENV)
            started.set()
            await asyncio.sleep(600)
        finally:
            await supervisor.close()

    task = asyncio.create_task(use())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_empty(tmp_path)


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    for ticks in range(0, 30, 3):
        task = asyncio.create_task(Supervisor.start(tmp_path))
        for _ in range(ticks):
            await asyncio.sleep(0.001)
        if not task.cancel():
            await task.result().close()
            continue
        with pytest.raises(asyncio.CancelledError):
            await task
    until(lambda: is_empty(tmp_path))


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            '{"level":"info","msg":"ok"}\n{"level":"fatal","msg":"discovery failed","error":"no disk"}\n',
            "discovery failed: no disk",
        ),
        ("I1115 1 1 a.go:1] start\nplain last words\n", "plain last words"),
        ("error: unknown flag: --nope\nUsage: ...\n", "error: unknown flag: --nope"),
        ("", ""),
    ],
)
def test_the_last_error_line_of_a_log(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "some.log"
    path.write_text(log)
    assert last_error_line(path) == line

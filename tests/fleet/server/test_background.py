"""Background tasks: failures are logged and repeated, an essential one stops the manager, and a stop waits."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kapsa.fleet.server.background import BackgroundTask, BackgroundTasks

pytestmark = pytest.mark.virtual_time


async def test_a_task_is_repeated_until_the_stop() -> None:
    rounds = []

    async def work() -> None:
        rounds.append(asyncio.get_running_loop().time())

    tasks = BackgroundTasks((BackgroundTask("t", work, every=1.0),))
    tasks.start()
    await asyncio.sleep(2.5)
    await tasks.stop()
    await asyncio.sleep(10)
    assert [round(each - rounds[0]) for each in rounds] == [0, 1, 2]


async def test_a_failing_task_is_logged_and_runs_again_later_and_later() -> None:
    rounds: list[float] = []

    async def work() -> None:
        rounds.append(asyncio.get_running_loop().time())
        if len(rounds) < 4:
            raise RuntimeError("on purpose")

    tasks = BackgroundTasks((BackgroundTask("t", work, every=1.0),))
    with capture_logs() as logs:
        tasks.start()
        await asyncio.sleep(16)
        await tasks.stop()
    assert [round(each - rounds[0]) for each in rounds] == [0, 2, 6, 14, 15, 16][: len(rounds)]
    assert len(rounds) >= 5
    failures = [entry for entry in logs if entry["event"] == "background task failed"]
    assert [(entry["task"], entry["failures"]) for entry in failures] == [("t", 1), ("t", 2), ("t", 3)]
    assert not tasks.failed.done()


async def test_an_hourly_task_runs_once_an_hour_and_a_minute_after_a_failure() -> None:
    rounds: list[float] = []

    async def work() -> None:
        rounds.append(asyncio.get_running_loop().time())
        if len(rounds) == 2:
            raise RuntimeError("on purpose")

    tasks = BackgroundTasks((BackgroundTask("t", work, every=3600.0),))
    with capture_logs():
        tasks.start()
        await asyncio.sleep(7300)
        await tasks.stop()
    assert [round(each - rounds[0]) for each in rounds] == [0, 3600, 3660, 7260]


async def test_one_failing_task_does_not_stop_the_others() -> None:
    rounds = []

    async def fail() -> None:
        raise RuntimeError("on purpose")

    async def work() -> None:
        rounds.append(1)

    tasks = BackgroundTasks((BackgroundTask("bad", fail), BackgroundTask("good", work)))
    with capture_logs():
        tasks.start()
        await asyncio.sleep(5.5)
        await tasks.stop()
    assert len(rounds) == 6


async def test_the_failure_of_an_essential_task_is_reported_to_the_manager() -> None:
    async def fail() -> None:
        raise RuntimeError("the database is gone")

    tasks = BackgroundTasks((BackgroundTask("database", fail, essential=True),))
    with capture_logs():
        tasks.start()
        assert await tasks.failed == "database: the database is gone"
        await tasks.stop()


async def test_a_stop_lets_a_round_finish() -> None:
    finished = []

    async def work() -> None:
        await asyncio.sleep(3)
        finished.append(1)

    tasks = BackgroundTasks((BackgroundTask("t", work),))
    tasks.start()
    await asyncio.sleep(1)
    await tasks.stop(timeout=10)
    assert finished == [1]


async def test_a_stop_asks_work_that_never_returns_to_end() -> None:
    asked, finished = asyncio.Event(), []

    async def serve() -> None:
        await asked.wait()
        finished.append(1)

    tasks = BackgroundTasks((BackgroundTask("engine", serve, on_stop=asked.set),))
    tasks.start()
    await asyncio.sleep(1)
    await tasks.stop(timeout=10)
    assert finished == [1]


async def test_a_stop_cancels_a_round_that_takes_too_long_and_a_task_that_never_ends() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    tasks = BackgroundTasks((BackgroundTask("slow", hang), BackgroundTask("service", hang, cancel=True)))
    tasks.start()
    await asyncio.sleep(1)
    started = asyncio.get_running_loop().time()
    with capture_logs() as logs:
        await tasks.stop(timeout=10)
    assert asyncio.get_running_loop().time() - started == pytest.approx(10)
    assert [entry["task"] for entry in logs] == ["slow"]

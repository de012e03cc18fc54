"""Virtual time: hours pass at once, but work in threads takes real time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from kapsa.devcluster import VirtualClock, VirtualTimeLoop
from kapsa.devcluster.clock import HostClock, run_on_virtual_time

pytestmark = pytest.mark.virtual_time


async def test_a_marked_test_runs_on_a_virtual_loop():
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_hours_of_sleep_pass_at_once():
    began = time.monotonic()
    await asyncio.sleep(36_000)
    assert time.monotonic() - began < 1
    assert asyncio.get_running_loop().time() >= 36_000


async def test_timers_fire_in_the_order_of_their_times():
    order: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(20, order.append, "late")
    loop.call_later(10, order.append, "early")
    await asyncio.sleep(30)
    assert order == ["early", "late"]


async def test_a_timeout_ends_a_wait_at_its_virtual_time():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(120):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == pytest.approx(120)


async def test_time_stands_still_while_a_thread_works():
    loop = asyncio.get_running_loop()
    asleep = asyncio.create_task(asyncio.sleep(3600))
    await asyncio.sleep(0)
    await loop.run_in_executor(None, time.sleep, 0.05)
    assert loop.time() == 0
    assert not asleep.done()
    await asleep


async def test_a_clock_counts_wall_time_from_its_epoch():
    clock = VirtualClock(epoch=datetime(2030, 5, 1, tzinfo=UTC))
    await clock.sleep(90)
    assert clock.now() == datetime(2030, 5, 1, 0, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == pytest.approx(90)


async def test_two_clocks_of_different_rates_drift_apart():
    slow, fast = VirtualClock(rate=1.0), VirtualClock(rate=1.5)
    await asyncio.sleep(100)
    assert fast.now() - slow.now() == timedelta(seconds=50)
    await fast.sleep(15)
    assert slow.monotonic() == pytest.approx(110)


def test_a_clock_without_a_loop_stands_at_its_epoch():
    assert VirtualClock().now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_rate_must_be_positive():
    with pytest.raises(ValueError, match="must be positive"):
        VirtualClock(rate=0)


def test_a_coroutine_runs_to_its_end_in_virtual_time():
    async def main() -> float:
        await asyncio.sleep(1000)
        return asyncio.get_running_loop().time()

    assert run_on_virtual_time(main()) == pytest.approx(1000)


def test_a_wait_that_nothing_can_end_is_reported_as_a_deadlock(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kapsa.devcluster.clock.DEADLOCK_SECONDS", 0.01)
    with pytest.raises(RuntimeError, match="deadlock in virtual time"):
        run_on_virtual_time(_forever())


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_the_host_clock_is_in_utc():
    assert HostClock().now().tzinfo is UTC

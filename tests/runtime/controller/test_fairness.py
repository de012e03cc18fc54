"""Runs that await nothing leave the event loop to probes, the lease and signals."""

from __future__ import annotations

import asyncio
import time

import pytest

from kapsa.runtime import Context, Operator, Requeue, Sharding
from kapsa.runtime.controller.reconciler import Reconciler
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, Work, app

RESOURCES = 1200


async def test_a_start_up_list_of_converged_resources_does_not_hold_the_event_loop(harness: Harness) -> None:
    await harness.install(App)
    for number in range(RESOURCES):
        await harness.apply(app(f"app-{number}"))
    first = Recorder(max_concurrent_reconciles=32)
    await harness.start(Operator(controllers=[first]))
    await _until_runs(first)  # which writes the status of each
    await harness.stop()
    # All runs together take longer than several turns, however fast the machine is.
    second = Recorder(_spin(0.0001), max_concurrent_reconciles=32)
    await harness.start(Operator(controllers=[second]))
    largest = await _until_runs(second)
    assert largest < RESOURCES / 2


async def test_many_controllers_hold_the_event_loop_together_no_longer_than_one(harness: Harness) -> None:
    await harness.install(App)
    for number in range(15):
        await harness.apply(app(f"app-{number}"))
    first = Recorder(max_concurrent_reconciles=32)
    await harness.start(Operator(controllers=[first]))
    await _until_runs(first, runs=15)
    await harness.stop()
    many = [Recorder(_spin(0.002), name=f"app-{number}", max_concurrent_reconciles=1) for number in range(20)]
    await harness.start(Operator(controllers=many))
    largest = await _until_runs(*many, runs=15 * 20)
    assert largest < 50, "a run of each worker, and the five that fit into one turn"


async def test_shards_that_start_together_let_the_event_loop_run_in_between(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = 0
    start = Reconciler.start

    def slow_start(reconciler: Reconciler, *, since: float) -> None:
        """Start with a long list."""
        nonlocal starts
        starts += 1
        ends = time.perf_counter() + 0.02
        while time.perf_counter() < ends:
            pass
        start(reconciler, since=since)

    monkeypatch.setattr(Reconciler, "start", slow_start)
    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder()], sharding=Sharding(name="apps", shards=8)))
    largest = before = 0
    async with asyncio.timeout(60):
        while before < 8:
            await asyncio.sleep(0)
            largest, before = max(largest, starts - before), starts
    assert largest == 1


def _spin(seconds: float) -> Work:
    """Return the work of a run that takes this time and awaits nothing."""

    async def spin(resource: App, ctx: Context[App]) -> None:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            pass

    return spin


async def _until_runs(*controllers: Recorder, runs: int = RESOURCES) -> int:
    """Wait until every resource ran. Return the largest number of runs between two turns of the event loop."""
    largest = before = 0
    async with asyncio.timeout(60):
        while before < runs:
            await asyncio.sleep(0)
            now = sum(len(each.runs) for each in controllers)
            largest = max(largest, now - before)
            before = now
    return largest


@pytest.mark.virtual_time
async def test_a_resource_that_always_requeues_at_once_lets_time_pass(harness: Harness) -> None:
    async def again(resource: App, ctx: Context[App]) -> Requeue:
        return Requeue(after=0)

    controller = Recorder(again)
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("eager"))
    await harness.settle(quiet=1, horizon=5)
    assert 100 < len(controller.runs) < 5000, len(controller.runs)


async def test_an_operator_stops_although_a_resource_always_requeues_at_once(harness: Harness) -> None:
    async def again(resource: App, ctx: Context[App]) -> Requeue:
        return Requeue(after=0)

    controller = Recorder(again)
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("eager"))
    while len(controller.runs) < 10:  # noqa: ASYNC110 - the runs are what is counted
        await asyncio.sleep(0.005)
    await asyncio.wait_for(harness.stop(), 10)
    count = len(controller.runs)
    await asyncio.sleep(0.05)
    assert len(controller.runs) == count

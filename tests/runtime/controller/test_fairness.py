"""Runs that await nothing leave the event loop to probes, the lease and signals."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.runtime import Context, Operator, Requeue
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

RESOURCES = 1200


async def test_a_start_up_list_of_converged_resources_does_not_hold_the_event_loop(harness: Harness) -> None:
    await harness.install(App)
    for number in range(RESOURCES):
        await harness.apply(app(f"app-{number}"))
    first = Recorder(max_concurrent_reconciles=32)
    await harness.start(Operator(controllers=[first]))
    await _until_runs(first)  # which writes the status of each
    await harness.stop()
    second = Recorder(max_concurrent_reconciles=32)
    await harness.start(Operator(controllers=[second]))
    largest = await _until_runs(second)
    assert largest < RESOURCES / 2


async def _until_runs(controller: Recorder) -> int:
    """Wait until every resource ran. Return the largest number of runs between two turns of the event loop."""
    largest = before = 0
    async with asyncio.timeout(60):
        while len(controller.runs) < RESOURCES:
            await asyncio.sleep(0)
            largest = max(largest, len(controller.runs) - before)
            before = len(controller.runs)
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

"""Event sources outside the cluster: they wake existing resources, and their failures stay their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kapsa.runtime import Channel, Clock, Operator, Polling, Sharding, Wake
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time


async def start(harness: Harness, *sources: Any) -> Recorder:
    controller = Recorder(sources=sources)
    await harness.install(App)
    await harness.apply(app("a"), app("b"))
    await harness.start(Operator(controllers=[controller]))
    await harness.clock.sleep(0.5)
    controller.runs.clear()
    return controller


async def test_a_channel_wakes_the_named_resource_and_ignores_invented_names(harness: Harness) -> None:
    channel = Channel()
    controller = await start(harness, channel)
    channel.wake("default", "a")
    for number in range(1000):
        channel.wake("default", f"invented-{number}")
    assert len(harness.running["operator"].reconcilers[0].queue) == 1
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_channel_wakes_nobody_after_the_operator_has_stopped(harness: Harness) -> None:
    channel = Channel()
    controller = await start(harness, channel)
    await harness.stop()
    channel.wake("default", "a")
    await harness.clock.sleep(5)
    assert controller.runs == []


async def test_a_poll_wakes_the_returned_resources_at_each_interval(harness: Harness) -> None:
    async def changed() -> list[tuple[str, str]]:
        return [("default", "b")]

    controller = await start(harness, Polling(changed, every=60))
    await harness.clock.sleep(185)
    assert controller.runs == ["b", "b", "b"]


async def test_a_source_that_fails_is_started_again_and_the_controller_goes_on(harness: Harness) -> None:
    class Flaky:
        starts = 0

        async def run(self, wake: Wake, clock: Clock) -> None:
            self.starts += 1
            if self.starts <= 3:
                raise ConnectionError("the queue is gone")
            wake("default", "a")
            await clock.sleep(10_000)

    flaky = Flaky()
    controller = await start(harness, flaky)
    await harness.apply(app("b", image="httpd"))
    await harness.clock.sleep(60)
    assert flaky.starts == 4
    assert sorted(controller.runs) == ["a", "b"]


async def test_a_source_is_started_again_after_something_it_awaited_was_cancelled(harness: Harness) -> None:
    attempts = 0

    async def changed() -> list[tuple[str, str]]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            abandoned = asyncio.get_running_loop().create_future()
            abandoned.cancel()
            await abandoned
        return [("default", "b")]

    controller = await start(harness, Polling(changed, every=60))
    await harness.clock.sleep(30)
    assert attempts == 2
    assert controller.runs == ["b"]


async def test_a_source_of_a_sharded_controller_runs_once_and_wakes_the_keys_of_all_shards(
    harness: Harness,
) -> None:
    polls = 0

    async def changed() -> list[tuple[str, str]]:
        nonlocal polls
        polls += 1
        return [("default", f"app-{number}") for number in range(12)]

    controller = Recorder(sources=[Polling(changed, every=60)])
    await harness.install(App)
    await harness.apply(*(app(f"app-{number}") for number in range(12)))
    await harness.start(Operator(controllers=[controller], sharding=Sharding(name="apps", shards=8)))
    await harness.clock.sleep(30)
    assert polls == 1
    controller.runs.clear()
    await harness.clock.sleep(60)
    assert polls == 2
    assert sorted(controller.runs) == sorted(f"app-{number}" for number in range(12))

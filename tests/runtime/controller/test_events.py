"""The event recorder: series, a spam filter, and no effect on a reconcile."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kapsa.devcluster.faults import Answer, Delay, FaultPlan, FaultRule
from kapsa.runtime import Context, Operator, errors
from kapsa.runtime.controller.events import BUFFER, BURST, SERIES_SECONDS, EventRecorder, ObjectReference
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time

WEB = ObjectReference(api_version="example.com/v1", kind="App", name="web", namespace="default", uid="u-1")


def recorder(harness: Harness, counts: dict[str, int] | None = None) -> EventRecorder:
    counted = counts if counts is not None else {}

    def count(outcome: str) -> None:
        counted[outcome] = counted.get(outcome, 0) + 1

    made = EventRecorder(
        harness.connect("recorder"),
        controller="my-operator",
        instance="pod-1",
        rng=random.Random(1),
        count=count,
    )
    made.start()
    return made


async def repeat(events: EventRecorder, harness: Harness, *, times: int, every: float) -> None:
    for _ in range(times):
        events.event(WEB, "Warning", "Failed", "again")
        await harness.clock.sleep(every)


async def test_an_event_has_its_reporter_action_and_object(harness: Harness) -> None:
    await harness.install(App)

    async def tell(resource: App, ctx: Context[App]) -> None:
        ctx.event("Normal", "Created", "made it", action="Create")

    await harness.start(Operator(controllers=[Recorder(tell)], name="my-operator"))
    await harness.apply(app("a"))
    await harness.settle()
    event = await harness.assert_event("Created", name="a")
    assert (event["type"], event["note"], event["action"]) == ("Normal", "made it", "Create")
    assert event["regarding"]["kind"] == "App"
    assert event["reportingController"] == "my-operator"
    assert event["metadata"]["namespace"] == "default"


async def test_repetitions_become_one_series(harness: Harness, faults: FaultPlan) -> None:
    events = recorder(harness)
    await repeat(events, harness, times=50, every=1)
    (event,) = await harness.events(reason="Failed")
    assert event["series"]["count"] == 2, "the first repetition is written at once, the others later"
    assert faults.count(resource="events", verb="create") == 1
    assert faults.count(resource="events", verb="patch") == 1
    await harness.clock.sleep(SERIES_SECONDS - 60)
    await repeat(events, harness, times=10, every=10)
    (event,) = await harness.events(reason="Failed")
    assert event["series"]["count"] > 50
    await harness.clock.sleep(SERIES_SECONDS + 1)
    events.event(WEB, "Warning", "Failed", "again")
    await harness.clock.sleep(1)
    assert len(await harness.events(reason="Failed")) == 2, "after a pause it is a new event"
    await events.stop()


@pytest.mark.parametrize("pause", [0.0, 1.0])
async def test_a_series_that_stops_repeating_gets_its_final_count_and_is_not_written_again(
    pause: float, harness: Harness, faults: FaultPlan
) -> None:
    events = recorder(harness)
    for _ in range(50):
        events.event(WEB, "Warning", "Failed", "again")
        last = harness.clock.now()
        await harness.clock.sleep(pause)
    await harness.clock.sleep(SERIES_SECONDS)
    (event,) = await harness.events(reason="Failed")
    assert event["series"]["count"] == 50
    assert event["series"]["lastObservedTime"] == last.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    written = faults.count(resource="events", verb="patch")
    assert written <= 2
    await harness.clock.sleep(24 * 3600)
    assert faults.count(resource="events", verb="patch") == written
    await events.stop()


async def test_a_series_that_goes_on_is_written_every_six_minutes(
    harness: Harness, faults: FaultPlan
) -> None:
    events = recorder(harness)
    await repeat(events, harness, times=121, every=30)
    assert faults.count(resource="events", verb="patch") == 3600 // SERIES_SECONDS
    await events.stop()


async def test_stopping_writes_the_final_counts(harness: Harness, faults: FaultPlan) -> None:
    events = recorder(harness)
    await repeat(events, harness, times=50, every=1)
    await events.stop()
    (event,) = await harness.events(reason="Failed")
    assert event["series"]["count"] == 50
    assert faults.count(resource="events", verb="patch") == 2


async def test_stopping_does_not_wait_for_a_server_that_does_not_answer(
    harness: Harness, faults: FaultPlan
) -> None:
    events = recorder(harness)
    await repeat(events, harness, times=50, every=1)
    faults.add(FaultRule(action=Delay(600), verb="patch", resource="events", times=0))
    started = harness.clock.monotonic()
    await events.stop()
    assert harness.clock.monotonic() - started < 3
    (event,) = await harness.events(reason="Failed")
    assert event["series"]["count"] == 2


async def test_a_crash_writes_nothing_more(harness: Harness, faults: FaultPlan) -> None:
    events = recorder(harness)
    await repeat(events, harness, times=50, every=1)
    await events.stop(seconds=0)
    await harness.clock.sleep(3600)
    assert faults.count(resource="events", verb="patch") == 1


async def test_an_event_can_refer_to_a_second_object(harness: Harness) -> None:
    await harness.install(App)
    pod = ObjectReference(api_version="v1", kind="Pod", name="web-0", namespace="default", uid="u-7")

    async def tell(resource: App, ctx: Context[App]) -> None:
        ctx.event("Normal", "Moved", "moved its pod", related=pod)

    await harness.start(Operator(controllers=[Recorder(tell)]))
    await harness.apply(app("a"))
    await harness.settle()
    event = await harness.assert_event("Moved", name="a")
    assert event["related"] == {
        "apiVersion": "v1", "kind": "Pod", "name": "web-0", "namespace": "default", "uid": "u-7"
    }  # fmt: skip


async def test_an_object_that_floods_is_filtered_and_others_are_not(harness: Harness) -> None:
    counts: dict[str, int] = {}
    events = recorder(harness, counts)
    for number in range(100):
        events.event(WEB, "Normal", "Flood", f"number {number}")
    other = ObjectReference(api_version="v1", kind="Pod", name="calm", namespace="default", uid="u-2")
    events.event(other, "Normal", "Calm", "only one")
    await harness.clock.sleep(1)
    assert len(await harness.events(reason="Flood")) == BURST
    assert len(await harness.events(reason="Calm")) == 1
    assert counts["filtered"] == 100 - BURST
    await harness.clock.sleep(300)
    events.event(WEB, "Normal", "Flood", "later")
    await harness.clock.sleep(1)
    assert len(await harness.events(reason="Flood")) == BURST + 1
    await events.stop()


async def test_an_event_never_fails_or_delays_a_reconcile(harness: Harness, faults: FaultPlan) -> None:
    faults.add(FaultRule(action=Delay(30), verb="create", resource="events", times=0))
    faults.add(FaultRule(action=Answer(code=500), verb="create", resource="events", times=0))
    took: list[float] = []

    async def tell(resource: App, ctx: Context[App]) -> None:
        started = harness.clock.monotonic()
        ctx.event("Normal", "Created", "made it")
        took.append(harness.clock.monotonic() - started)

    await harness.install(App)
    controller = Recorder(tell)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("a"))
    await harness.clock.sleep(600)
    assert controller.runs == ["a"]
    assert took == [0]


async def test_a_full_buffer_drops_events_and_counts_them(harness: Harness, faults: FaultPlan) -> None:
    counts: dict[str, int] = {}
    faults.add(FaultRule(action=Delay(60), verb="create", resource="events", times=0))
    events = recorder(harness, counts)
    for number in range(BUFFER + 10):
        each = ObjectReference(
            api_version="v1", kind="Pod", name=f"p{number}", namespace="default", uid=str(number)
        )
        events.event(each, "Normal", "Many", "of them")
    assert counts["dropped"] == 10
    await events.stop()


async def test_an_event_of_a_cluster_scoped_object_goes_to_the_default_namespace(harness: Harness) -> None:
    events = recorder(harness)
    events.event(ObjectReference(api_version="v1", kind="Node", name="n1"), "Normal", "Seen", "hello")
    await harness.clock.sleep(1)
    event = await harness.assert_event("Seen")
    assert event["metadata"]["namespace"] == "default"
    await events.stop()


async def test_an_unknown_event_type_is_rejected(harness: Harness) -> None:
    events = recorder(harness)
    with pytest.raises(ValueError, match="Normal or Warning, got 'Error'"):
        events.event(WEB, "Error", "Failed", "no")
    with pytest.raises(ValueError, match="event reason must be"):
        events.event(WEB, "Normal", "", "no")
    await events.stop()


class Failing(Recorder):
    """Fails with a given error."""

    def __init__(self, error: Exception, **attributes: Any) -> None:
        async def fail(resource: App, ctx: Context[App]) -> None:
            raise error

        super().__init__(fail, **attributes)


async def test_a_failing_reconcile_leaves_one_event_with_a_count_and_no_secret(harness: Harness) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    controller = Failing(ValueError("cannot log in with hunter2"))
    await harness.start(Operator(controllers=[controller]))
    await harness.clock.sleep(700)
    (event,) = await harness.events(reason="ReconcileFailed", name="a")
    assert "hunter2" not in str(event)
    assert event["type"] == "Warning"
    assert event["note"].startswith("ValueError in fail (test_events.py:")
    assert event["series"]["count"] > 5


async def test_an_invalid_child_is_reported_by_its_fields_and_not_by_their_values(harness: Harness) -> None:
    async def apply(resource: App, ctx: Context[App]) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "data": {"a b": "aHVudGVyMg=="},
        }
        await ctx.apply(secret)

    await harness.install(App)
    await harness.apply(app("a"))
    await harness.start(Operator(controllers=[Recorder(apply, owns=["v1/Secret"])]))
    await harness.settle()
    (event,) = await harness.events(reason="ReconcileFailed", name="a")
    assert "/secrets/s" in event["note"]
    assert "data[a b]" in event["note"]
    assert "aHVudGVyMg" not in event["note"]


async def test_a_run_that_times_out_leaves_an_event(harness: Harness) -> None:
    async def hang(resource: App, ctx: Context[App]) -> None:
        await asyncio.Event().wait()

    await harness.install(App)
    await harness.apply(app("a"))
    await harness.start(Operator(controllers=[Recorder(hang, reconcile_timeout=5.0)]))
    await harness.clock.sleep(30)
    (event,) = await harness.events(reason="ReconcileFailed", name="a")
    assert event["note"] == "timed out after 5 s"


async def test_an_outage_that_passes_leaves_no_event(harness: Harness) -> None:
    left = [2]

    async def flaky(resource: App, ctx: Context[App]) -> None:
        if left[0]:
            left[0] -= 1
            raise errors.TransportError("connection refused")

    await harness.install(App)
    await harness.apply(app("a"))
    await harness.start(Operator(controllers=[Recorder(flaky)]))
    await harness.settle()
    assert await harness.events(reason="ReconcileFailed") == []

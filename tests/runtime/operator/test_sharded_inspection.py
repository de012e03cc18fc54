"""The debug endpoint of a replica that shares the keys with others: which shards it holds, and who has the rest."""

from __future__ import annotations

import pytest

from kapsa.runtime import Context, Operator, Requeue, Sharding
from kapsa.runtime.operator.inspection import InspectionReport
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time


async def again_later(resource: App, ctx: Context[App]) -> Requeue:
    return Requeue(after=3600)


async def replica(harness: Harness, name: str) -> None:
    operator = Operator(
        controllers=[Recorder(again_later)], sharding=Sharding(name="apps", shards=4), debug_port=0
    )
    await harness.start(operator, name=name)


def report(harness: Harness, name: str, **asked: str) -> InspectionReport:
    inspection = harness.running[name].inspection
    assert inspection is not None
    return inspection.report(**asked)


async def test_each_shard_is_reported_with_its_holder(harness: Harness) -> None:
    await harness.install(App)
    for name in ("one", "two"):
        await replica(harness, name)
    await harness.clock.sleep(120)
    one, two = report(harness, "one"), report(harness, "two")
    assert one.shards is not None
    assert two.shards is not None
    assert sorted((*one.shards.held, *two.shards.held)) == [0, 1, 2, 3]
    assert one.shards.held
    assert two.shards.held
    assert one.shards.count == 4
    assert one.shards.replicas == tuple(sorted((one.identity, two.identity)))
    assert [part.shard for part in one.controllers] == [0, 1, 2, 3]
    for part in one.controllers:
        mine = part.shard in one.shards.held
        assert part.holder == (one.identity if mine else two.identity)
        assert part.state == ("working" if mine else f"held by {two.identity}")


async def test_a_resource_is_reported_by_its_own_shard_and_names_the_replica_that_has_it(
    harness: Harness,
) -> None:
    await harness.install(App)
    for name in ("one", "two"):
        await replica(harness, name)
    await harness.clock.sleep(120)
    names = [f"app-{number}" for number in range(8)]
    await harness.apply(*map(app, names))
    await harness.settle()
    owners = set()
    for name in names:
        answers = {each: report(harness, each, key=f"default/{name}") for each in ("one", "two")}
        states = {}
        for each, answer in answers.items():
            (controller,) = answer.controllers
            (states[each],) = controller.keys
        (owner,) = (each for each, state in states.items() if state.state == "delayed")
        (other,) = states.keys() - {owner}
        assert states[other].state == "elsewhere"
        assert states[other].waits_for == f"{answers[owner].identity}, which holds its shard"
        assert states[other].runs == ()
        owners.add(owner)
    assert owners == {"one", "two"}


async def test_a_shard_whose_replica_crashed_has_no_holder_until_another_takes_it(harness: Harness) -> None:
    await harness.install(App)
    for name in ("one", "two"):
        await replica(harness, name)
    await harness.clock.sleep(120)
    two = report(harness, "two")
    assert two.shards is not None
    lost = two.shards.held[0]
    await harness.kill("two")
    states: list[str] = []
    for _ in range(240):
        state = report(harness, "one").controllers[lost].state
        if states[-1:] != [state]:
            states.append(state)
        await harness.clock.sleep(0.5)
    assert states == [f"held by {two.identity}", "held by no replica", "working"]
    assert report(harness, "one").controllers[lost].holder == harness.running["one"].identity

"""Leases that change hands while reconciles run: a key never has two replicas at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kapsa.devcluster.faults import Drop, FaultPlan, FaultRule
from kapsa.runtime import Context, Operator, Sharding
from kapsa.runtime.resources.stored_object import Key
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

RESOURCES = 12
SHARDS = 8


class SlowRuns:
    """A behaviour that takes long, and counts the runs of each resource that go on at the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __call__(self, resource: App, ctx: Context[App]) -> None:
        self.running[resource.name] += 1
        self.most[resource.name] = max(self.most[resource.name], self.running[resource.name])
        try:
            await ctx.client.clock.sleep(self._seconds)
        finally:
            self.running[resource.name] -= 1


def sharded(work: SlowRuns, *, shutdown_grace: float = 30.0) -> Operator:
    return Operator(
        controllers=[Recorder(work, max_concurrent_reconciles=RESOURCES, reconcile_timeout=None)],
        sharding=Sharding(name="apps", shards=SHARDS),
        shutdown_grace=shutdown_grace,
    )


async def change_all(harness: Harness, image: str) -> None:
    await harness.apply(*(app(f"app-{number}", image=image) for number in range(RESOURCES)))


async def test_a_stop_in_the_middle_of_a_hand_over_waits_for_the_runs_and_keeps_their_lease(
    harness: Harness,
) -> None:
    work = SlowRuns(20)
    await harness.install(App)
    first = await harness.start(sharded(work), name="first")
    await harness.clock.sleep(30)
    second = await harness.start(sharded(work), name="second")
    await change_all(harness, "one")
    assert first.shards is not None
    assert second.shards is not None
    for _ in range(40):
        await harness.clock.sleep(0.5)
        if any(each.handing_over for each in first.shards.electors):
            break
    assert any(each.handing_over for each in first.shards.electors)
    assert sum(work.running.values()) == RESOURCES
    stop = asyncio.create_task(harness.stop("first"))
    for _ in range(400):
        await harness.clock.sleep(0.5)
        assert max(work.running.values()) <= 1
    assert stop.done()
    assert set(work.most.values()) == {1}
    assert second.shards.held == list(range(SHARDS))


async def test_a_replica_that_stops_releases_each_shard_when_its_own_runs_have_ended(
    harness: Harness,
) -> None:
    async def slow_or_not(resource: App, ctx: Context[App]) -> None:
        if resource.spec.image == "slow":
            await ctx.client.clock.sleep(25)

    def operator() -> Operator:
        return Operator(controllers=[Recorder(slow_or_not)], sharding=Sharding(name="apps", shards=SHARDS))

    await harness.install(App)
    await change_all(harness, "quick")
    first = await harness.start(operator(), name="first")
    await harness.clock.sleep(30)
    second = await harness.start(operator(), name="second")
    await harness.clock.sleep(60)
    assert first.shards is not None
    assert second.shards is not None
    shards = [first.shards.shard(index, "") for index in first.shards.held]
    names = (f"app-{number}" for number in range(RESOURCES))
    slow = next(name for name in names if any(Key("default", name) in each for each in shards))
    (busy,) = [each.index for each in shards if Key("default", slow) in each]
    await harness.apply(app(slow, image="slow"))
    await harness.clock.sleep(1)
    stop = asyncio.create_task(harness.stop("first"))
    await harness.clock.sleep(15)
    assert second.shards.held == [index for index in range(SHARDS) if index != busy]
    assert first.shards.held == [busy]
    await harness.clock.sleep(30)
    assert stop.done()
    assert second.shards.held == list(range(SHARDS))


async def holder(harness: Harness) -> str:
    lease = await harness.get("coordination.k8s.io/v1/Lease", "lock")
    return str(lease["spec"]["holderIdentity"])


@pytest.mark.parametrize(("seconds", "released"), [(5, True), (60, False)])
async def test_a_lease_under_which_a_run_was_cancelled_is_left_to_expire_at_a_stop(
    harness: Harness, seconds: float, released: bool
) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    controller = Recorder(SlowRuns(seconds), reconcile_timeout=None)
    await harness.start(
        Operator(controllers=[controller], leader_election="lock", shutdown_grace=10.0), name="first"
    )
    await harness.clock.sleep(2)
    await harness.stop("first")
    assert (await holder(harness) == "") == released


@pytest.mark.parametrize(("later", "released"), [(1, False), (20, True)])
async def test_a_lease_is_not_released_soon_after_a_write_that_was_never_answered(
    harness: Harness, faults: FaultPlan, later: float, released: bool
) -> None:
    async def create_child(resource: App, ctx: Context[App]) -> None:
        await ctx.client.create(config_map("child"), namespace="default")

    await harness.install(App)
    faults.add(FaultRule(action=Drop(), verb="create", resource="configmaps", client="first"))
    await harness.start(
        Operator(controllers=[Recorder(create_child, owns=["v1/ConfigMap"])], leader_election="lock"),
        name="first",
    )
    await harness.clock.sleep(5)
    await harness.apply(app("a"))
    await harness.clock.sleep(later)
    await harness.stop("first")
    assert (await holder(harness) == "") == released


@pytest.mark.parametrize("way_out", ["hand-over", "stop"])
async def test_a_lease_that_is_lost_on_the_way_out_cancels_the_runs_that_still_had_time(
    harness: Harness, faults: FaultPlan, way_out: str
) -> None:
    """Writes are refused anyway, but a run may also act outside of the cluster."""
    work = SlowRuns(110)
    await harness.install(App)
    first = await harness.start(sharded(work, shutdown_grace=120), name="first")
    await harness.clock.sleep(30)
    await change_all(harness, "one")
    await harness.clock.sleep(1)
    assert first.shards is not None
    if way_out == "hand-over":
        await harness.start(sharded(work, shutdown_grace=120), name="second")
    else:
        stop = asyncio.create_task(harness.stop("first"))
    await harness.clock.sleep(10)
    assert sum(work.running.values()) == RESOURCES
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    await harness.clock.sleep(25)
    assert first.shards.held == []
    assert set(work.most.values()) == {1}
    await harness.clock.sleep(10)
    if way_out == "stop":
        assert sum(work.running.values()) == 0
        await stop
    else:
        await harness.clock.sleep(60)
        assert set(work.most.values()) == {1}

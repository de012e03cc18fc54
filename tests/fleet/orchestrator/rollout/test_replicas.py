"""Several replicas over one database: the work is shared, done once, and a zombie writes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.releases import HelmStatus
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, DirectStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost
from kapsa.fleet.orchestrator.ports.rollouts import FenceLost, RolloutClaim
from kapsa.fleet.orchestrator.rollout.renewal import LeaseKeeper
from tests.eventually import eventually
from tests.fleet.crash_points import Crash, CrashingTransactions, CrashPlan
from tests.fleet.examples import DEPLOYER, cluster_id
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

pytestmark = pytest.mark.sampled(8, of="module")

FIVE = tuple(f"dev-{number}" for number in range(1, 6))
SOAK = CanaryStrategy(percentages=(40, 100), evaluation_period=timedelta(seconds=30))
LEASE = timedelta(seconds=60)
LAPSE = LEASE * 1.1
"""A time after which any replica that has watched a lease may take it."""


async def run_together(fleet: RolloutHarness, engines: list[Any]) -> None:
    """Run all engines at the same time until nothing is due at any time."""
    for _ in range(500):
        if sum(await asyncio.gather(*(engine.run_due() for engine in engines))):
            continue
        due = await engines[0].next_due()
        if due is None:
            return
        fleet.set_time(max(due, fleet.now))
    raise AssertionError("the rollout does not come to rest")


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("bad", [(), ("dev-4",)], ids=["healthy", "unhealthy"])
async def test_replicas_share_the_work_and_end_like_one(
    database: Database, count: int, bad: tuple[str, ...]
) -> None:
    fleet = RolloutHarness(database, *FIVE)
    await fleet.register()
    fleet.clusters.unhealthy = {(name, NEW) for name in bad}
    made = await fleet.create(SOAK)
    await run_together(fleet, [fleet.replica(f"manager-{number}", slots=2) for number in range(count)])
    summary = await fleet.summary(made.id)
    assert summary["phase"] is (DeploymentPhase.ROLLED_BACK if bad else DeploymentPhase.COMPLETED)
    for name in FIVE:
        acts = fleet.clusters[name].completed
        assert acts[:1] == ["upgrade operators/cert-manager 2"]
        assert len(acts) == (2 if bad else 1)


@pytest.mark.parametrize("seed", range(2))
async def test_replicas_that_die_at_random_lose_and_repeat_nothing(database: Database, seed: int) -> None:
    """Kill replicas again and again; each is replaced, and shares the work with one that lives."""
    chance = random.Random(seed)
    fleet = RolloutHarness(database, *FIVE)
    await fleet.register()
    made = await fleet.create(DirectStrategy(parallel_clusters=5))
    survivor = fleet.replica("survivor", slots=1)
    deaths = 0
    for number in range(400):
        plan = CrashPlan()
        mortal = fleet.replica(f"mortal-{number}", CrashingTransactions(database, plan), slots=2)
        fleet.clusters.interrupt = plan.interrupt
        # Often early: a replica with little to do lives through most of the later ones.
        plan.crash_after = chance.randrange(chance.choice((3, 12)))
        done = 0
        try:
            done = await mortal.run_due()
        except* Crash:
            done = 1
        deaths += plan.crashed
        fleet.clusters.interrupt = CrashPlan().interrupt
        if not done + await survivor.run_due():
            due = await survivor.next_due()
            if due is None:
                break
            fleet.set_time(max(due, fleet.now))
    assert deaths > 3
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    for name in FIVE:
        assert fleet.clusters[name].completed == ["upgrade operators/cert-manager 2"]
        assert fleet.clusters[name].chart_of(RELEASE) == (2, NEW)


async def stopped_in_helm(fleet: RolloutHarness, call: str) -> tuple[asyncio.Task[int], asyncio.Event]:
    """Start a replica that stops in the middle of a call, as by SIGSTOP, and return what lets it go on."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def stop(name: str) -> None:
        if name.endswith(call) and not reached.is_set():
            reached.set()
            await go_on.wait()

    fleet.clusters.on_call = stop
    zombie = fleet.replica("zombie", slots=1)

    async def run() -> int:
        while not reached.is_set():
            await zombie.run_due()
        return 0

    task = asyncio.create_task(run())
    await asyncio.wait_for(reached.wait(), 120)
    return task, go_on


async def test_a_zombie_past_its_lease_writes_nothing_to_the_cluster(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(SOAK)
    task, go_on = await stopped_in_helm(fleet, "upgrade")
    await fleet.settle()
    fleet.set_time(fleet.now + LAPSE)
    await fleet.settle()
    assert fleet.clusters["dev-1"].completed == ["upgrade operators/cert-manager 2"]
    before = list(fleet.clusters["dev-1"].history(RELEASE))
    go_on.set()
    await task
    assert fleet.clusters["dev-1"].history(RELEASE) == before
    assert (await fleet.targets(made.id))["dev-1"].step is TargetStep.VALIDATE
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_zombie_with_a_stopped_clock_is_fenced_out_of_the_database(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(SOAK)
    fleet.seconds = lambda: 0.0  # type: ignore[method-assign]
    task, go_on = await stopped_in_helm(fleet, "observe")
    del fleet.seconds
    other = fleet.replica("manager-2")
    await fleet.settle(other)
    fleet.set_time(fleet.now + LAPSE)
    await fleet.settle(other)
    events = await fleet.deployments.events(DEPLOYER, made.id)
    target = (await fleet.targets(made.id))["dev-1"]
    go_on.set()
    await task
    assert (await fleet.targets(made.id))["dev-1"] == target
    assert await fleet.deployments.events(DEPLOYER, made.id) == events


async def test_every_write_with_an_old_fence_is_refused(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(SOAK)
    async with database.transaction() as connection:
        (old,) = await fleet.store.claim(connection, "a", LEASE, limit=9)
    async with database.transaction() as connection:
        assert await fleet.store.claim(connection, "b", LEASE, limit=9) == []
        lapsed = await fleet.store.held_leases(connection)
        (new,) = await fleet.store.claim(connection, "b", LEASE, limit=9, lapsed=lapsed)
    assert new.fence == old.fence + 1
    async with database.transaction() as connection:
        assert not await fleet.store.renew(connection, old, LEASE)
        assert await fleet.store.renew(connection, new, LEASE)
        with pytest.raises(FenceLost):
            await fleet.store.lock(connection, made.id, fence=old.fence)
        stale = RolloutClaim(made.id, cluster_id("dev-1"), 99)
        with pytest.raises(FenceLost):
            await fleet.store.look(connection, stale)
        target = (await fleet.store.targets(connection, made.id))[0]
        with pytest.raises(FenceLost):
            await fleet.store.save_target(connection, stale, target, seen_goal=target.goal, release=True)


async def test_two_replicas_never_claim_the_same_row(database: Database) -> None:
    fleet = RolloutHarness(database, *FIVE)
    await fleet.register()
    await fleet.create(DirectStrategy(parallel_clusters=5))
    await fleet.replica("planner", slots=1).run_due()
    await fleet.replica("planner", slots=1).run_due()

    async def claim(owner: str) -> list[RolloutClaim]:
        async with database.transaction() as connection:
            return await fleet.store.claim(connection, owner, LEASE, limit=3)

    claims = [claim for claims in await asyncio.gather(*map(claim, "abc")) for claim in claims]
    assert len(claims) == len({(each.deployment_id, each.cluster_id) for each in claims}) == 5


async def test_a_lease_is_renewed_while_work_lasts_and_lost_when_another_took_it(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    await fleet.create(SOAK)
    ticks: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(seconds: float) -> None:
        assert seconds == LEASE.total_seconds() / 3
        await ticks.get()

    keeper = LeaseKeeper(database, fleet.store, LEASE, monotonic=fleet.seconds, sleep=sleep)
    async with database.transaction() as connection:
        (claim,) = await fleet.store.claim(connection, "a", LEASE, limit=1)
    async with keeper.keep(claim, keeper.moment()) as guard:
        fleet.set_time(fleet.now + timedelta(seconds=40))
        await _tick(ticks, guard, lambda left: left == 60)
        fleet.set_time(fleet.now + LEASE)
        with pytest.raises(LeaseLost):
            guard.check()
        async with database.transaction() as connection:
            lapsed = await fleet.store.held_leases(connection)
            assert await fleet.store.claim(connection, "b", LEASE, limit=1, lapsed=lapsed)
        await _tick(ticks, guard, lambda left: left <= 0)


async def _tick(ticks: asyncio.Queue[None], guard: LeaseGuard, until: Callable[[float], bool]) -> None:
    """Let a renewal happen, and wait for what it does to the guard."""

    async def remaining() -> float:
        return guard.remaining

    ticks.put_nowait(None)
    await eventually(remaining, until, "the renewal", seconds=10)


def test_a_revoked_guard_is_over_at_once() -> None:
    guard = LeaseGuard(100.0, lambda: 50.0)
    guard.check()
    guard.revoke()
    with pytest.raises(LeaseLost):
        guard.check()


@pytest.mark.parametrize("status", [HelmStatus.PENDING_UPGRADE, HelmStatus.FAILED])
async def test_a_record_that_our_dead_helm_left_leads_to_one_revision(
    database: Database, status: HelmStatus
) -> None:
    """A killed Helm is run again and makes the same revision; one that gave up is rolled back."""
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(SOAK)
    task, go_on = await stopped_in_helm(fleet, "apply_crds")
    intent = (await fleet.targets(made.id))["dev-1"].intent
    assert intent is not None
    fleet.clusters["dev-1"].put(RELEASE, 2, status, labels=intent.labels, description="Upgrade failed: x")
    await fleet.run()
    go_on.set()
    await task
    revisions = [record.revision for record in fleet.clusters["dev-1"].history(RELEASE)]
    cut_off = status is HelmStatus.PENDING_UPGRADE
    assert revisions == ([1, 2] if cut_off else [1, 2, 3])
    expected = DeploymentPhase.COMPLETED if cut_off else DeploymentPhase.ROLLED_BACK
    assert (await fleet.deployment(made.id)).phase is expected


async def test_a_replica_that_stops_finishes_what_is_under_way_and_claims_nothing_more(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "dev-1", "dev-2")
    await fleet.register()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(call: str) -> None:
        if call.endswith(" upgrade"):
            begun.set()
            await go_on.wait()

    fleet.clusters.on_call = hold
    made = await fleet.create(DirectStrategy(parallel_clusters=1))
    serving = asyncio.create_task(fleet.engine.serve())
    await asyncio.wait_for(begun.wait(), 120)
    fleet.engine.stop()
    await asyncio.sleep(0.05)
    assert not serving.done()
    go_on.set()
    await asyncio.wait_for(serving, 120)
    acts = [fleet.clusters[name].completed for name in ("dev-1", "dev-2")]
    assert acts == [["upgrade operators/cert-manager 2"], []]
    assert (await fleet.deployment(made.id)).phase is not DeploymentPhase.COMPLETED


async def test_a_replica_that_is_cut_off_hands_its_lease_back_and_another_takes_over_at_once(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    begun = asyncio.Event()

    async def hold(call: str) -> None:
        if call.endswith(" upgrade") and not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    fleet.clusters.on_call = hold
    await fleet.create(DirectStrategy())
    serving = asyncio.create_task(fleet.engine.serve())
    await asyncio.wait_for(begun.wait(), 60)
    before = fleet.now
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await fleet.settle(fleet.replica("manager-2"))
    assert fleet.now == before, "no lease had to lapse"
    assert fleet.clusters["dev-1"].completed == ["upgrade operators/cert-manager 2"]


async def test_a_replica_that_stops_begins_no_further_step_and_keeps_no_lease(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()

    async def stop(call: str) -> None:
        if call.endswith(" upgrade"):
            fleet.engine.stop()

    fleet.clusters.on_call = stop
    made = await fleet.create(DirectStrategy())
    await asyncio.wait_for(fleet.engine.serve(), 60)
    assert (await fleet.targets(made.id))["dev-1"].step is TargetStep.VALIDATE
    async with database.transaction() as connection:
        claims = await fleet.store.claim(connection, "manager-2", LEASE, limit=9)
    assert cluster_id("dev-1") in {each.cluster_id for each in claims}


async def test_a_lease_that_another_replica_has_taken_is_not_handed_back(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    await fleet.create(SOAK)
    async with database.transaction() as connection:
        (old,) = await fleet.store.claim(connection, "a", LEASE, limit=9)
    async with database.transaction() as connection:
        lapsed = await fleet.store.held_leases(connection)
        assert await fleet.store.claim(connection, "b", LEASE, limit=9, lapsed=lapsed)
        assert not await fleet.store.hand_back(connection, old)
        assert await fleet.store.claim(connection, "c", LEASE, limit=9) == []

"""Leases of others: taken only once they stand still, whatever the clock of the database says."""

from __future__ import annotations

import inspect
import time
import uuid
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.leases import HolderClock, LeaseGuard, LeaseLost, elapsed_seconds
from kapsa.fleet.orchestrator.ports.rollouts import HeldLease
from kapsa.fleet.orchestrator.rollout.engine import RolloutEngine
from kapsa.fleet.orchestrator.rollout.takeover_watch import TakeoverWatch
from tests.fleet.examples import START
from tests.fleet.orchestrator.rollout.test_replicas import LAPSE, LEASE, stopped_in_helm
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

SECONDS = LEASE.total_seconds()
HELD = HeldLease(uuid.UUID(int=1), None, 3, START)


class MovableClock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    acts=st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.floats(0, 100)),
            st.tuples(st.just("jump"), st.integers(-10_000, 10_000)),
            st.tuples(st.sampled_from(["renew", "look"]), st.just(0)),
        ),
        max_size=30,
    )
)
def test_no_lease_is_taken_while_its_holder_may_write(acts: list[tuple[str, float]]) -> None:
    clock = MovableClock()
    watch, guard = TakeoverWatch(LEASE, clock), LeaseGuard(SECONDS, clock)
    database, held = START, msgspec.structs.replace(HELD, until=START + LEASE)
    for act, amount in acts:
        if act == "wait":
            clock.now += amount
        elif act == "jump":
            database += timedelta(seconds=amount)
        elif act == "renew" and guard.remaining > 0:
            guard.extend(clock.now + SECONDS)
            held = msgspec.structs.replace(held, until=later(database, held.until))
        elif watch.lapsed([held]):
            assert guard.remaining <= 0
            return


def later(now: datetime, until: datetime) -> datetime:
    """Return the end of a renewed lease as the database computes it."""
    return max(now + LEASE, until + timedelta(microseconds=1))


def test_a_lease_that_stands_still_can_be_taken_and_one_that_moves_counts_from_scratch() -> None:
    clock = MovableClock()
    watch = TakeoverWatch(LEASE, clock)
    assert watch.lapsed([HELD]) == []
    clock.now = SECONDS
    assert watch.lapsed([HELD]) == []
    assert timedelta() < watch.remaining(HELD) < LEASE / 10
    clock.now = SECONDS * 1.1
    assert watch.lapsed([HELD]) == [HELD]
    renewed = msgspec.structs.replace(HELD, until=START + LEASE)
    assert watch.lapsed([renewed]) == []
    assert watch.lapsed([HELD]) == [], "what was gone is counted from scratch"


@pytest.mark.parametrize("jump", [timedelta(days=1), timedelta(minutes=2)], ids=["day", "minutes"])
async def test_a_jump_of_the_clock_gives_no_other_replica_a_cluster_that_helm_is_running_on(
    database: Database, jump: timedelta
) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(DirectStrategy())
    other = fleet.replica("manager-2")
    task, go_on = await stopped_in_helm(fleet, "upgrade")
    await fleet.settle(other)
    database.set_clock(fleet.now + jump)  # the monotonic clocks of the processes do not jump
    assert await other.run_due() == 0
    go_on.set()
    await task
    fleet.set_time(fleet.now + jump)
    await fleet.run(other)
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].completed == ["upgrade operators/cert-manager 2"]


async def test_a_renewal_is_seen_by_others_although_the_clock_of_the_database_went_back(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    await fleet.create(DirectStrategy())
    async with database.transaction() as connection:
        (claim,) = await fleet.store.claim(connection, "a", LEASE, limit=1)
        before = await fleet.store.held_leases(connection)
    async with database.transaction() as connection:
        await connection.exec_driver_sql(f"SET LOCAL fleet.now = '{START - timedelta(days=1)}'")
        assert await fleet.store.renew(connection, claim, LEASE)
    async with database.transaction() as connection:
        assert await fleet.store.held_leases(connection) != before
        assert await fleet.store.claim(connection, "b", LEASE, limit=1, lapsed=before) == []


async def test_the_lease_of_a_dead_replica_is_taken_by_one_that_has_watched_it(database: Database) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    made = await fleet.create(DirectStrategy())
    watching, fresh = fleet.replica("manager-2"), fleet.replica("manager-3")
    task, go_on = await stopped_in_helm(fleet, "upgrade")
    await fleet.settle(watching)
    fleet.set_time(fleet.now + LAPSE)
    assert await fresh.run_due() == 0, "a replica that has just started has watched nothing"
    await fleet.run(watching)
    go_on.set()
    await task
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert [each.revision for each in fleet.clusters["dev-1"].history(RELEASE)] == [1, 2]


def test_a_lease_lapses_while_a_virtual_machine_is_paused_once_its_time_of_day_is_right_again() -> None:
    clocks = {"own": 100.0, "day": 5000.0}
    holder = HolderClock(lambda: clocks["own"], lambda: clocks["day"])
    guard = LeaseGuard(holder() + 60, holder)

    def pass_time(own: float, day: float) -> float:
        clocks["own"] += own
        clocks["day"] += day
        return guard.remaining

    assert pass_time(20, 20) == 40
    assert pass_time(5, -3600) == 35, "a time of day that is set back prolongs no lease"
    assert pass_time(0, 3600) == 35
    assert pass_time(0, 0) == 35, "the pause: no clock of the machine runs"
    assert pass_time(0.5, 63.5) < 0
    with pytest.raises(LeaseLost):
        guard.check()


async def test_an_engine_holds_its_leases_by_the_time_of_day_and_waits_for_others_by_its_own_clock(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "dev-1")
    await fleet.register()
    await fleet.create(DirectStrategy())
    watching = fleet.replica("manager-2")
    task, go_on = await stopped_in_helm(fleet, "apply_crds")
    await fleet.settle(watching)
    fleet.jump = 3600.0
    assert await watching.run_due() == 0
    go_on.set()
    await task
    assert fleet.clusters["dev-1"].completed == [], "the lease of the holder has lapsed"
    fleet.set_time(fleet.now + LAPSE)
    await fleet.run(watching)
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)


def test_a_lease_lapses_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect.signature(RolloutEngine).parameters["monotonic"].default is elapsed_seconds
    guard = LeaseGuard(elapsed_seconds() + 60, elapsed_seconds)
    guard.check()
    awake = time.clock_gettime

    def resumed(clock: int) -> float:
        return awake(clock) + (600 if clock == time.CLOCK_BOOTTIME else 0)

    monkeypatch.setattr(time, "clock_gettime", resumed)
    with pytest.raises(LeaseLost):
        guard.check()

"""Events for webhooks: every end, stop and turn of a deployment, by the engine or by a person."""

from __future__ import annotations

from datetime import timedelta

from kapsa.fleet.domain.rollout.approvals import ApprovalState
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.rollout_harness import RolloutHarness

CANARY = CanaryStrategy(percentages=(30, 100), evaluation_period=timedelta(minutes=1))


async def registered(database: Database, *names: str) -> RolloutHarness:
    fleet = RolloutHarness(database, *names)
    await fleet.register()
    return fleet


def announced(fleet: RolloutHarness) -> list[str]:
    return [event.type for event in fleet.outbox.events]


async def test_a_pause_and_a_rollback_by_a_person_are_announced(database: Database) -> None:
    fleet = await registered(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.pause(DEPLOYER, made.id)
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    assert announced(fleet) == ["deployment.paused", "deployment.rollingBack", "deployment.rolledBack"]
    paused = fleet.outbox.events[0].data
    assert (paused["previousPhase"], paused["requestedBy"]) == ("Validating", DEPLOYER.subject)


async def test_an_abort_before_the_start_is_announced(database: Database) -> None:
    fleet = await registered(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.deployments.abort(ADMIN, made.id)
    await fleet.run()
    assert announced(fleet) == ["deployment.aborted"]


async def test_an_abort_that_waits_for_what_is_under_way_is_announced_once(database: Database) -> None:
    fleet = await registered(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.abort(ADMIN, made.id)
    await fleet.run()
    assert announced(fleet) == ["deployment.aborted"]


async def test_a_rejection_is_announced(database: Database) -> None:
    fleet = await registered(database, "prod-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    async with database.transaction() as connection:
        requests = await fleet.approval_rows.of(connection, made.id)
    (pending,) = (each for each in requests if each.state is ApprovalState.PENDING)
    await fleet.approvals.reject(ADMIN, pending.id, comment="not today")
    await fleet.run()
    assert announced(fleet) == ["approval.requested", "deployment.rejected"]

"""The traces of a deleted cluster in deployments: neither its name nor its manifests, but all of their history."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import RollingStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.audit.sealer import AuditSealer
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.audit.verifier import verify_chain
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.database_text import database_text
from tests.fleet.examples import ADMIN, cluster_id
from tests.fleet.orchestrator.rollout.rollouts import CANARY, MINUTE, fleet_selector, started
from tests.fleet.rollout_harness import BAD, NEW, RELEASE, RolloutHarness

KEY = bytes(range(32))


async def rows_with(database: Database, name: str) -> list[str]:
    return [row for row in (await database_text(database)).splitlines() if name in row]


async def test_a_deleted_cluster_leaves_neither_its_name_nor_its_manifests_in_the_history(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "prod-eu", "dev-2", trail=PostgresAuditTrail(KEY))
    await fleet.register()
    fleet.sources.report = {"diff": "+ replicas: 3"}
    fleet.clusters.unhealthy = {("prod-eu", BAD)}
    upgraded = await fleet.create(CANARY)
    await fleet.run(act=lambda: fleet.approve_all(upgraded.id))
    failed = await fleet.create(CANARY, version="3.0.0")
    await fleet.run(act=lambda: fleet.approve_all(failed.id))
    rolling = await fleet.create(RollingStrategy(cluster_order=("prod-eu",)))
    await fleet.settle()
    assert (await fleet.deployment(failed.id)).message.startswith("prod-eu: ")
    await AuditSealer(database, KEY).seal()

    deleted = await fleet.delete_cluster("prod-eu")

    assert await rows_with(database, "dev-2")
    assert await rows_with(database, "prod-eu") == []
    assert (await fleet.deployment(failed.id)).message.startswith(f"{deleted}: ")
    for made in (upgraded, failed, rolling):
        assert set(await fleet.targets(made.id)) == {deleted, "dev-2"}
        async with database.transaction() as connection:
            plan = await fleet.store.plan(connection, made.id)
            events = await fleet.store.events(connection, made.id, after=0, limit=1000)
            assert await fleet.store.bundle(connection, made.id, cluster_id("prod-eu")) is None
            assert await fleet.store.bundle(connection, made.id, cluster_id("dev-2")) is not None
        assert plan is not None
        assert {each.cluster_name: each.diff for each in plan.clusters} == {
            deleted: "",
            "dev-2": "+ replicas: 3",
        }
        assert {each.cluster for each in events} <= {"", deleted, "dev-2"}
    await AuditSealer(database, KEY).seal()
    report = await verify_chain(database, KEY)
    assert (report.findings, report.unsealed) == ((), 0)

    await fleet.run(act=lambda: fleet.approve_all(rolling.id))
    assert (await fleet.deployment(rolling.id)).phase is DeploymentPhase.COMPLETED
    assert (await fleet.targets(rolling.id))[deleted].reason == "Deleted"
    assert await rows_with(database, "prod-eu") == []


async def test_a_name_that_is_part_of_another_one_is_erased_alone(database: Database) -> None:
    fleet = await started(database, "dev", "dev-10")
    fleet.clusters.unhealthy = {("dev-10", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    deleted = await fleet.delete_cluster("dev")
    assert set(await fleet.targets(made.id)) == {deleted, "dev-10"}
    assert (await fleet.deployment(made.id)).message.startswith("dev-10: ")
    assert {target.environment for target in (await fleet.targets(made.id)).values()}


@pytest.mark.parametrize("call", ["inspect", "apply_crds", "upgrade", "observe"])
async def test_a_deletion_while_the_engine_works_on_the_cluster_brings_no_name_back(
    database: Database, call: str
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    deleted: list[str] = []

    async def delete(reached: str) -> None:
        if reached == f"dev-1 {call}" and not deleted:
            deleted.append(await fleet.delete_cluster("dev-1"))

    fleet.clusters.on_call = delete
    made = await fleet.create(CANARY)
    await fleet.run()
    assert await rows_with(database, "dev-1") == []
    (name,) = deleted
    target = (await fleet.targets(made.id))[name]
    assert (target.step, target.reason) == (TargetStep.SKIPPED, "Deleted")
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (2, NEW)


async def test_a_deleted_cluster_is_erased_from_other_deployments_of_the_version_that_failed_there(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    other = await fleet.create(CANARY, targets=fleet_selector("dev-2", "dev-3"))
    await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    await fleet.pass_time(10 * MINUTE)
    assert "rolled back by" in (await fleet.deployment(other.id)).message
    deleted = await fleet.delete_cluster("dev-1")
    assert await rows_with(database, "dev-1") == []
    assert f": {deleted}: " in (await fleet.deployment(other.id)).message
    await fleet.deployments.rollback(ADMIN, other.id, reason="it failed elsewhere")
    await fleet.run()
    assert (await fleet.deployment(other.id)).phase is DeploymentPhase.ROLLED_BACK


async def test_a_forced_deployment_goes_on_when_the_cluster_that_its_version_failed_on_is_deleted(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    await fleet.pass_time(5 * MINUTE)
    forced = await fleet.create(
        CANARY, by=ADMIN, force_reason="one node was broken", targets=fleet_selector("dev-2", "dev-3")
    )
    await fleet.pass_time(timedelta(seconds=5))
    assert fleet.clusters["dev-3"].completed == []
    await fleet.delete_cluster("dev-1")
    await fleet.pass_time(10 * MINUTE)
    assert (await fleet.deployment(forced.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-3"].chart_of(RELEASE) == (2, NEW)
    assert await rows_with(database, "dev-1") == []

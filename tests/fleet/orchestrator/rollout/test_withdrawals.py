"""Withdrawals: a version that was rolled back goes no further anywhere, unless an admin forces it after that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.registry.windows import ChangeFreeze
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.orchestrator.rollout.rollouts import (
    BLUE_GREEN,
    CANARY,
    MINUTE,
    fleet_selector,
    started,
    steps,
)
from tests.fleet.rollout_harness import NEW, OLD, OPERATOR_ID, RELEASE, RolloutHarness


async def _withdraw(fleet: RolloutHarness, *clusters: str) -> Any:
    """Let version 2.0.0 fail on other clusters, and be taken back there."""
    fleet.clusters.unhealthy = {(name, NEW) for name in clusters}
    bad = await fleet.create(CANARY, targets=fleet_selector(*clusters))
    await fleet.pass_time(5 * MINUTE)
    assert (await fleet.deployment(bad.id)).phase is DeploymentPhase.ROLLED_BACK
    fleet.clusters.unhealthy = set()
    return bad


async def test_a_deployment_paused_on_a_version_that_was_withdrawn_since_is_not_resumed(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    other = await fleet.create(CANARY, targets=fleet_selector("dev-2", "dev-3"))
    await fleet.pass_time(timedelta(seconds=5))
    await fleet.deployments.pause(DEPLOYER, other.id)
    await fleet.pass_time(3 * MINUTE)
    await _withdraw(fleet, "dev-1")
    with pytest.raises(StateConflict, match=r"is withdrawn: rolled back by .*; abort the deployment or roll"):
        await fleet.deployments.resume(DEPLOYER, other.id)
    await fleet.pass_time(5 * MINUTE)
    assert fleet.clusters["dev-3"].completed == []


async def test_a_deployment_at_work_pauses_before_the_first_cluster_after_a_withdrawal(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    other = await fleet.create(CANARY, targets=fleet_selector("dev-2", "dev-3"))
    await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    await fleet.pass_time(10 * MINUTE)
    assert fleet.clusters["dev-3"].completed == []
    deployment, target = await fleet.deployment(other.id), (await fleet.targets(other.id))["dev-3"]
    assert (deployment.phase, target.reason) == (DeploymentPhase.PAUSED, "VersionWithdrawn")
    assert "dev-3: version 2.0.0 of cert-manager is withdrawn: rolled back by" in deployment.message
    await fleet.deployments.rollback(ADMIN, other.id, reason="it failed on dev-1")
    await fleet.run()
    assert (await fleet.deployment(other.id)).phase is DeploymentPhase.ROLLED_BACK


async def test_a_cluster_that_waits_for_its_window_is_not_changed_to_a_withdrawn_version(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    freeze = ChangeFreeze(START - MINUTE, START + timedelta(hours=1), "the fair")
    await fleet.update_cluster("dev-2", freezes=msgspec.to_builtins((freeze,)))
    other = await fleet.create(CANARY, targets=fleet_selector("dev-2"))
    await fleet.pass_time(MINUTE)
    await _withdraw(fleet, "dev-1")
    await fleet.run()
    assert fleet.clusters["dev-2"].completed == []
    assert (await fleet.targets(other.id))["dev-2"].reason == "VersionWithdrawn"


@pytest.mark.parametrize("strategy", [CANARY, BLUE_GREEN], ids=["canary", "blue-green"])
async def test_an_upgrade_that_waits_to_begin_is_not_made_to_a_withdrawn_version(
    database: Database, strategy: Any
) -> None:
    fleet = await started(database, "dev-1", "dev-2")

    async def busy(call: str) -> None:
        if call == "dev-2 apply_crds":
            raise ClusterUnreachable("the API server answered 503")

    fleet.clusters.on_call = busy
    other = await fleet.create(strategy, targets=fleet_selector("dev-2"))
    await fleet.pass_time(timedelta(seconds=30))
    assert (await steps(fleet, other))["dev-2"] in (TargetStep.UPGRADE, TargetStep.INSTALL_NEXT)
    async with fleet.database.transaction() as connection:
        await fleet.registry.withdraw(connection, OPERATOR_ID, "2.0.0", "it loses data")
    fleet.clusters.on_call = None
    await fleet.run()
    assert fleet.clusters["dev-2"].completed == []
    assert (await fleet.targets(other.id))["dev-2"].reason == "VersionWithdrawn"
    await fleet.deployments.rollback(ADMIN, other.id, reason="it loses data")
    await fleet.run()
    assert (await fleet.deployment(other.id)).phase is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (1, OLD)


async def test_a_plan_that_was_begun_before_a_withdrawal_is_not_carried_out_after_it(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")

    async def withdraw(call: str) -> None:
        if call == "dev-1 inspect":
            async with fleet.database.transaction() as connection:
                await fleet.registry.withdraw(connection, OPERATOR_ID, "2.0.0", "it loses data")

    fleet.clusters.on_call = withdraw
    made = await fleet.create(CANARY)
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    expected = "version 2.0.0 of cert-manager is withdrawn: it loses data"
    assert (deployment.phase, deployment.message) == (DeploymentPhase.FAILED, expected)


async def test_green_is_not_switched_to_a_withdrawn_version(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    other = await fleet.create(BLUE_GREEN, targets=fleet_selector("dev-2"))
    await fleet.settle()
    assert (await steps(fleet, other))["dev-2"] is TargetStep.VALIDATE_NEXT
    async with fleet.database.transaction() as connection:
        await fleet.registry.withdraw(connection, OPERATOR_ID, "2.0.0", "it loses data")
    await fleet.run()
    target = (await fleet.targets(other.id))["dev-2"]
    assert (target.step, target.reason) == (TargetStep.AWAIT_SWITCH, "VersionWithdrawn")
    assert fleet.clusters["dev-2"].replicas[RELEASE] == 1


async def test_a_withdrawal_is_forced_by_an_admin_after_it_and_for_one_attempt(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    made = await fleet.create(CANARY, by=ADMIN, force_reason="Direct in production, agreed with operations")
    await fleet.run()
    changes = len(fleet.clusters["dev-1"].completed)
    with pytest.raises(StateConflict, match="is withdrawn"):
        await fleet.deployments.retry(DEPLOYER, made.id)
    with pytest.raises(NotAllowed):
        await fleet.deployments.retry(DEPLOYER, made.id, force_reason="I know better")
    await fleet.deployments.retry(ADMIN, made.id, force_reason="the node was broken")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert len(fleet.clusters["dev-1"].completed) == changes + 2
    with pytest.raises(StateConflict, match="is withdrawn"):
        await fleet.deployments.retry(DEPLOYER, made.id)


async def test_a_force_before_a_withdrawal_does_not_set_it_aside(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2", "dev-3")
    other = await fleet.create(
        CANARY, by=ADMIN, force_reason="agreed", targets=fleet_selector("dev-2", "dev-3")
    )
    await fleet.pass_time(timedelta(seconds=5))
    await fleet.deployments.pause(DEPLOYER, other.id)
    await _withdraw(fleet, "dev-1")
    with pytest.raises(StateConflict, match="is withdrawn"):
        await fleet.deployments.resume(ADMIN, other.id)
    await fleet.deployments.retry(ADMIN, other.id, force_reason="it fails on dev-1 only")
    await fleet.run()
    assert (await fleet.deployment(other.id)).phase is DeploymentPhase.COMPLETED

"""Rollouts while the keys are away: every wait is visible and has an end, and nobody is stuck because of it."""

from __future__ import annotations

from datetime import timedelta

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.key_outage import AWAY, LOST, OutageVault, OutageWrapper
from tests.fleet.rollout_harness import NEW, OLD, PATIENCE, RELEASE, RolloutHarness

DEV = ("dev-1", "dev-2", "dev-3")
CANARY = CanaryStrategy(percentages=(30, 100), evaluation_period=timedelta(minutes=1))


async def registered(database: Database) -> tuple[RolloutHarness, OutageWrapper]:
    vault = OutageVault()
    fleet = RolloutHarness(database, *DEV, vault=vault)
    await fleet.register()
    return fleet, vault.keys


async def at_second_stage(database: Database) -> tuple[RolloutHarness, OutageWrapper, VersionDeployment]:
    """Return a fleet right before its second stage, in which two clusters are upgraded."""
    fleet, keys = await registered(database)
    made = await fleet.create(CANARY)
    await fleet.pass_time(timedelta(seconds=55))
    assert [name for name in DEV if fleet.clusters[name].completed] == ["dev-1"]
    return fleet, keys, made


async def test_a_plan_waits_for_the_keys_says_so_and_is_made_once_they_are_back(database: Database) -> None:
    fleet, keys = await registered(database)
    made = await fleet.create(CANARY, secret_values={"password": "hunter2hunter2"})
    keys.away = True
    await fleet.pass_time(PATIENCE - timedelta(seconds=10))
    waiting = await fleet.deployment(made.id)
    assert (waiting.phase, waiting.waits_for) == (DeploymentPhase.PLANNING, AWAY)
    assert waiting.deadline is not None
    keys.away = False
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_plan_that_cannot_be_sealed_waits_and_fails_once_its_patience_is_over(
    database: Database,
) -> None:
    fleet, keys = await registered(database)
    made = await fleet.create(CANARY)
    keys.away = True
    await fleet.pass_time(PATIENCE - timedelta(seconds=10))
    waiting = await fleet.deployment(made.id)
    assert (waiting.phase, waiting.waits_for) == (DeploymentPhase.PLANNING, AWAY)
    await fleet.run()
    failed = await fleet.deployment(made.id)
    assert failed.phase is DeploymentPhase.FAILED
    assert AWAY in failed.message


async def test_secret_values_that_can_never_be_opened_fail_the_plan(database: Database) -> None:
    fleet, keys = await registered(database)
    made = await fleet.create(CANARY, secret_values={"password": "hunter2hunter2"})
    keys.lose()
    await fleet.settle()
    failed = await fleet.deployment(made.id)
    assert failed.phase is DeploymentPhase.FAILED
    assert LOST in failed.message


async def test_an_upgrade_waits_for_the_keys_says_so_and_goes_on(database: Database) -> None:
    fleet, keys, made = await at_second_stage(database)
    keys.away = True
    await fleet.pass_time(timedelta(seconds=90))
    for name, target in (await fleet.targets(made.id)).items():
        if name != "dev-1":
            assert (target.step, target.waits_for) == (TargetStep.UPGRADE, AWAY)
            assert target.deadline is not None
    keys.away = False
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert all(fleet.clusters[name].chart_of(RELEASE) == (2, NEW) for name in DEV)


async def test_an_upgrade_whose_keys_stay_away_pauses_the_deployment_and_can_be_aborted(
    database: Database,
) -> None:
    fleet, keys, made = await at_second_stage(database)
    keys.away = True
    await fleet.pass_time(2 * PATIENCE)
    paused = await fleet.deployment(made.id)
    assert paused.phase is DeploymentPhase.PAUSED
    assert AWAY in paused.message
    assert (await fleet.targets(made.id))["dev-2"].reason == "KeysUnavailable"
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.settle()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ABORTED


async def test_a_deployment_whose_upgrades_wait_for_the_keys_can_be_rolled_back_without_them(
    database: Database,
) -> None:
    fleet, keys, made = await at_second_stage(database)
    keys.away = True
    await fleet.pass_time(timedelta(seconds=30))
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert all(fleet.clusters[name].chart_of(RELEASE)[1] == OLD for name in DEV)


async def test_a_manifest_that_can_never_be_opened_pauses_at_once_and_a_retry_renders_it_again(
    database: Database,
) -> None:
    fleet, keys, made = await at_second_stage(database)
    keys.lose()
    await fleet.pass_time(timedelta(seconds=30))
    paused = await fleet.deployment(made.id)
    assert paused.phase is DeploymentPhase.PAUSED
    assert LOST in paused.message
    assert "retry" in paused.message
    assert (await fleet.targets(made.id))["dev-2"].reason == "ManifestUnreadable"
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.settle()
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert all(fleet.clusters[name].chart_of(RELEASE)[1] == NEW for name in DEV)

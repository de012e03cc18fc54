"""Rollouts while the keys are away: every wait is visible and has an end, and nobody is stuck because of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, OfflinePolicy, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.rollout.targets import TargetState, TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from kapsa.fleet.orchestrator.ports.helm import HelmFailed
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.helm_double import Interruption, undisturbed
from tests.fleet.key_outage import AWAY, LOST, OutageVault, OutageWrapper, watch_transactions
from tests.fleet.rollout_harness import NEW, OLD, PATIENCE, RELEASE, RolloutHarness

pytestmark = pytest.mark.sampled(6, of="module")

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


@pytest.mark.parametrize(
    ("call", "step"), [("history", TargetStep.PREPARE), ("record_baseline", TargetStep.UPGRADE)]
)
async def test_an_upgrade_waits_for_the_keys_says_so_and_goes_on(
    database: Database, call: str, step: TargetStep
) -> None:
    fleet, keys, made = await at_second_stage(database)

    async def lose_keys(made: str) -> None:
        if made.endswith(call) and not made.startswith("dev-1"):
            keys.away = True

    fleet.clusters.on_call = lose_keys
    await fleet.pass_time(timedelta(seconds=90))
    fleet.clusters.on_call = None
    waiting = [each for name, each in (await fleet.targets(made.id)).items() if name != "dev-1"]
    assert step in {each.step for each in waiting}
    for target in waiting:
        assert target.waits_for == AWAY
        if target.step is step:
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


async def test_no_transaction_of_a_rollout_waits_for_the_keys(database: Database) -> None:
    watch_transactions(database)
    fleet, keys = await registered(database)
    keys.seconds = 0.01
    made = await fleet.create(CANARY, secret_values={"password": "hunter2hunter2"})
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert keys.calls >= 1 + 2 * len(DEV)
    assert keys.in_transactions == 0
    assert keys.at_once == len(DEV)


def withhold(fleet: RolloutHarness, *, call: str = "") -> None:
    """Let the credential of dev-2 be sealed with keys that are away, for these calls or for all."""

    async def on_call(made: str) -> None:
        if made.startswith(f"dev-2 {call}"):
            raise CredentialUnavailable(f"its credential cannot be opened now: {AWAY}")

    fleet.clusters.on_call = on_call


@pytest.mark.parametrize("call", ["inspect", "history"])
async def test_a_cluster_whose_credential_cannot_be_opened_is_waited_for_and_never_skipped(
    database: Database, call: str
) -> None:
    fleet, _ = await registered(database)
    withhold(fleet, call=call)
    made = await fleet.create(CANARY, on_offline=OfflinePolicy.SKIP)
    await fleet.pass_time(timedelta(seconds=100))
    waiting = (await fleet.targets(made.id))["dev-2"]
    assert waiting.state is TargetState.PENDING
    if call == "inspect":
        deployment = await fleet.deployment(made.id)
        assert (deployment.phase, AWAY in deployment.waits_for) == (DeploymentPhase.PLANNING, True)
    else:
        assert AWAY in waiting.waits_for
        assert waiting.deadline is not None
    fleet.clusters.on_call = None
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (2, NEW)


async def test_a_cluster_whose_credential_stays_closed_pauses_the_deployment(database: Database) -> None:
    fleet, _ = await registered(database)
    withhold(fleet, call="history")
    made = await fleet.create(CANARY)
    await fleet.pass_time(2 * PATIENCE)
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.PAUSED
    target = (await fleet.targets(made.id))["dev-2"]
    assert (target.step, target.reason) == (TargetStep.PREPARE, "KeysUnavailable")
    fleet.clusters.on_call = None
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_rollback_that_nobody_could_look_at_says_so_and_can_be_repeated(database: Database) -> None:
    fleet, _ = await registered(database)
    made = await fleet.create(CANARY)
    await fleet.run()
    withhold(fleet, call="observe")
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    failed = await fleet.deployment(made.id)
    assert failed.phase is DeploymentPhase.FAILED
    target = (await fleet.targets(made.id))["dev-2"]
    assert (target.step, target.reason) == (TargetStep.ROLLBACK_FAILED, "KeysUnavailable")
    assert "could not be checked after the rollback" in target.message
    assert "is not healthy" not in target.message
    fleet.clusters.on_call = None
    await fleet.deployments.rollback(ADMIN, made.id, reason="look again")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK


@asynccontextmanager
async def _answer_lost(call: str) -> Any:
    """Let Helm fail, and leave it to the history to say so."""
    try:
        yield Interruption()
    except HelmFailed:
        raise ClusterUnreachable("no route to host") from None


@pytest.mark.parametrize("away", [False, True], ids=["keys", "no keys"])
async def test_a_failure_that_is_read_from_the_history_quotes_no_value(
    database: Database, away: bool
) -> None:
    fleet, keys = await registered(database)
    fleet.clusters.interrupt = _answer_lost
    fleet.clusters.conflict_while_applying = "the password hunter2 hunter2 is weak"
    made = await fleet.create(CANARY, secret_values={"password": "hunter2\nhunter2"})
    await fleet.settle()
    fleet.clusters.interrupt = undisturbed
    keys.away = away
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    shown = "Helm gave up, and its message may quote values" if away else "the password *** is weak"
    assert (deployment.phase, shown in deployment.message) == (DeploymentPhase.ROLLED_BACK, True)
    assert "hunter2" not in repr((await fleet.summary(made.id))["events"])

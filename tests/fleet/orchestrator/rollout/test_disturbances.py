"""People and other clients get in the way of a rollout: it ends, reports what is there, and loses nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow, Weekday
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, OfflinePolicy, VersionDeployment
from kapsa.fleet.domain.rollout.releases import HelmStatus
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
)
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.rollout_harness import BAD, NEW, OLD, OPERATOR_ID, PATIENCE, RELEASE, RolloutHarness

pytestmark = pytest.mark.sampled(9, of="module")

MINUTE = timedelta(minutes=1)
CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=MINUTE)
BLUE_GREEN = BlueGreenStrategy("blue", "green", validation_period=MINUTE, monitoring_period=MINUTE)


async def started(database: Database, *names: str) -> RolloutHarness:
    fleet = RolloutHarness(database, *names)
    await fleet.register()
    return fleet


async def phase_of(fleet: RolloutHarness, made: VersionDeployment) -> DeploymentPhase:
    return (await fleet.deployment(made.id)).phase


async def outcome(fleet: RolloutHarness, made: VersionDeployment) -> dict[str, tuple[TargetStep, str]]:
    return {name: (each.step, each.reason) for name, each in (await fleet.targets(made.id)).items()}


async def abort_in_validation(fleet: RolloutHarness, strategy: Any) -> VersionDeployment:
    """Deploy to every cluster, and abort while each validates the new version."""
    made = await fleet.create(strategy)
    await fleet.settle()
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ABORTED
    return made


AT_ONCE = CanaryStrategy(percentages=(100,), evaluation_period=MINUTE)


async def test_a_release_that_a_person_uninstalled_is_not_reported_as_rolled_back(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-1"].records.clear()
    await fleet.deployments.rollback(ADMIN, made.id, reason="it is slow")
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert "revision 1 of operators/cert-manager no longer exists" in deployment.message
    assert await outcome(fleet, made) == {"dev-1": (TargetStep.ROLLBACK_FAILED, "RevisionGone")}


async def test_a_retry_after_an_uninstall_by_a_person_goes_back_to_nothing(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await abort_in_validation(fleet, CANARY)
    fleet.clusters["dev-1"].records.clear()
    await fleet.deployments.retry(DEPLOYER, made.id)
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-1"].history(RELEASE) == []


@pytest.mark.long
async def test_a_release_that_a_person_installed_before_a_retry_is_what_the_rollback_returns_to(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters["dev-1"].records.clear()  # a first install
    made = await abort_in_validation(fleet, CANARY)
    fleet.clusters["dev-1"].records.clear()
    for _ in range(2):
        fleet.clusters["dev-1"].install_by_hand(RELEASE, OLD)
    await fleet.deployments.retry(DEPLOYER, made.id)
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (4, OLD)


@pytest.mark.parametrize("revision", [1, 2, 5])
async def test_blue_green_switches_back_whatever_the_revision_of_blue_is(
    database: Database, revision: int
) -> None:
    fleet = await started(database, "dev-1")
    for _ in range(1, revision):
        fleet.clusters["dev-1"].install_by_hand(RELEASE, OLD)
    made = await fleet.create(BLUE_GREEN)
    await fleet.run(horizon=timedelta(hours=1))
    assert await phase_of(fleet, made) is DeploymentPhase.COMPLETED
    await fleet.deployments.rollback(ADMIN, made.id, reason="customers complain")
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.ROLLED_BACK, deployment.message
    cluster = fleet.clusters["dev-1"]
    assert cluster.chart_of(RELEASE) == (revision, OLD)
    assert [str(release) for release, records in cluster.records.items() if records] == [str(RELEASE)]


@pytest.mark.long
async def test_blue_green_that_goes_back_before_its_install_leaves_the_retained_release_alone(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    for version in ("2.0.0", "1.0.0"):  # to green, and on to blue: green is retained
        await fleet.create(BLUE_GREEN, version=version)
        await fleet.run(horizon=timedelta(hours=1))
    cluster = fleet.clusters["dev-1"]
    before = {str(release): list(records) for release, records in cluster.records.items() if records}
    assert "green/cert-manager-green" in before

    async def refuse(call: str) -> None:
        if call.endswith("apply_crds"):
            raise ClusterRefused("no such CRD here")

    fleet.clusters.on_call = refuse
    made = await fleet.create(BLUE_GREEN, version="3.0.0")
    await fleet.settle()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    after = {str(release): list(records) for release, records in cluster.records.items() if records}
    assert after == before


async def test_a_rollback_takes_back_what_an_earlier_attempt_left_on_clusters_whose_turn_has_not_come(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await abort_in_validation(fleet, AT_ONCE)
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {NEW}
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.settle()
    await fleet.deployments.pause(DEPLOYER, made.id)
    fleet.clusters.unhealthy = {("dev-1", NEW), ("dev-2", NEW)}
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {OLD}


@pytest.mark.parametrize("verb", ["abort", "rollback"])
async def test_a_retry_in_stages_can_be_aborted_and_taken_back_between_its_stages(
    database: Database, verb: str
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await abort_in_validation(fleet, AT_ONCE)
    fleet.clusters["dev-1"].offline = True  # its turn comes late, and the other's never
    fleet.clusters["dev-2"].offline = True
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.settle()
    if verb == "abort":
        await fleet.deployments.abort(DEPLOYER, made.id)
        await fleet.settle()
        assert await phase_of(fleet, made) is DeploymentPhase.ABORTED
        assert {step for step, _ in (await outcome(fleet, made)).values()} == {TargetStep.ABORTED}
    for each in fleet.clusters.clusters.values():
        each.offline = False
    await fleet.settle()
    if await phase_of(fleet, made) is DeploymentPhase.PLANNING:
        await fleet.pass_time(MINUTE)
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {OLD}


async def test_a_rolling_retry_that_fails_takes_back_the_clusters_that_still_wait(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(DirectStrategy())
    await fleet.settle()
    assert await phase_of(fleet, made) is DeploymentPhase.COMPLETED
    made = await fleet.create(RollingStrategy(validation_period=MINUTE), version="3.0.0")
    await fleet.pass_time(MINUTE * 1.5)  # dev-1 has passed, dev-2 validates
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    await fleet.deployments.retry(DEPLOYER, made.id)
    fleet.clusters.unhealthy = {("dev-2", "sha256:chart-3")}
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {NEW}


async def test_a_cluster_that_a_retry_skips_goes_back_with_the_others(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(AT_ONCE, on_offline=OfflinePolicy.SKIP)
    await fleet.settle()
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    fleet.clusters["dev-2"].offline = True
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    assert (await outcome(fleet, made))["dev-2"] == (TargetStep.SKIPPED, "Offline")
    fleet.clusters["dev-2"].offline = False
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {OLD}


async def test_an_abort_ends_although_an_act_has_given_up(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")

    async def interfere(call: str) -> None:
        if call == "dev-1 apply_crds":
            fleet.clusters.on_call = None
            fleet.clusters["dev-1"].install_by_hand(RELEASE, OLD)
            raise ConnectionError("the manager's network is away for a moment")

    fleet.clusters.on_call = interfere
    made = await fleet.create(CANARY)
    await fleet.run()
    paused = await fleet.deployment(made.id)
    assert paused.phase is DeploymentPhase.PAUSED
    assert "changed by another client" in paused.message
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.settle()
    assert await phase_of(fleet, made) is DeploymentPhase.ABORTED
    assert await outcome(fleet, made) == {
        "dev-1": (TargetStep.ABORTED, "Aborted"),
        "dev-2": (TargetStep.SKIPPED, "Aborted"),
    }
    await fleet.create(CANARY, version="3.0.0")  # the clusters are free again


@pytest.mark.parametrize("end", ["completed", "aborted"])
async def test_a_rollback_ends_when_a_changed_cluster_is_no_longer_registered(
    database: Database, end: str
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    if end == "aborted":
        made = await abort_in_validation(fleet, AT_ONCE)
    else:
        made = await fleet.create(AT_ONCE)
        await fleet.run()
    deleted = await fleet.delete_cluster("dev-1")
    await fleet.deployments.rollback(ADMIN, made.id, reason="customers complain")
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert (await outcome(fleet, made))[deleted] == (TargetStep.SKIPPED, "Deleted")
    assert fleet.clusters["dev-2"].chart_of(RELEASE)[1] == OLD


async def test_there_is_nothing_to_roll_back_once_every_changed_cluster_is_deleted(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    deleted = await fleet.delete_cluster("dev-1")
    await fleet.run()
    assert await outcome(fleet, made) == {deleted: (TargetStep.SKIPPED, "Deleted")}
    with pytest.raises(StateConflict, match="there is nothing to roll back"):
        await fleet.deployments.rollback(ADMIN, made.id, reason="customers complain")


async def test_a_rollback_before_helm_began_keeps_the_record_of_what_runs(database: Database) -> None:
    fleet = await started(database, "dev-1")
    await fleet.create(BLUE_GREEN)
    await fleet.run(horizon=timedelta(hours=1))

    fleet.clusters.on_call = refuse_crds
    failing = await fleet.create(CANARY, version="3.0.0")
    await fleet.run(horizon=timedelta(hours=2))
    assert await phase_of(fleet, failing) is DeploymentPhase.ROLLED_BACK
    assert (await outcome(fleet, failing))["dev-1"] == (TargetStep.ROLLED_BACK, "CrdsRefused")
    (cluster_id,) = fleet.clusters.clusters
    async with database.transaction() as connection:
        installation = await fleet.store.installation(connection, cluster_id, OPERATOR_ID)
    assert installation is not None, "the next plan would install a second controller next to green"
    assert (str(installation.release), installation.revision) == ("green/cert-manager-green", 1)


async def fail_a_rollback(fleet: RolloutHarness) -> None:
    """Deploy a bad version whose rollback fails: Helm then has no revision that is deployed."""
    fleet.clusters.unhealthy, fleet.clusters.rollback_fails = {("dev-1", NEW)}, True
    made = await fleet.create(CANARY)
    await fleet.run()
    assert await outcome(fleet, made) == {"dev-1": (TargetStep.ROLLBACK_FAILED, "HelmFailed")}
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (0, "")
    fleet.clusters.rollback_fails = False


async def refuse_crds(call: str) -> None:
    if call.endswith("apply_crds"):
        raise ClusterRefused("the CRD costs too much")


@pytest.mark.parametrize("before_helm", [True, False])
async def test_the_rollback_after_a_failed_rollback_uninstalls_nothing(
    database: Database, before_helm: bool
) -> None:
    fleet = await started(database, "dev-1")
    await fail_a_rollback(fleet)
    fleet.clusters.unhealthy |= {("dev-1", BAD)}
    fleet.clusters.on_call = refuse_crds if before_helm else None
    made = await fleet.create(CANARY, version="3.0.0")
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    cluster = fleet.clusters["dev-1"]
    assert not [each for each in cluster.completed if each.startswith("uninstall")]
    if before_helm:
        assert [each.revision for each in cluster.history(RELEASE)] == [1, 2, 3]
    else:
        assert cluster.chart_of(RELEASE) == (5, OLD), "the bad version of the deployment before came back"


async def test_a_revision_that_failed_before_the_plan_does_not_hold_up_a_rollback(database: Database) -> None:
    fleet = await started(database, "dev-1")
    failed = 'Upgrade "cert-manager" failed: admission denied'
    fleet.clusters["dev-1"].put(RELEASE, 2, HelmStatus.FAILED, description=failed)
    fleet.clusters.on_call = refuse_crds
    made = await fleet.create(CANARY)
    await fleet.settle()
    assert await outcome(fleet, made) == {"dev-1": (TargetStep.ROLLED_BACK, "CrdsRefused")}
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    (cluster_id,) = fleet.clusters.clusters
    async with database.transaction() as connection:
        installation = await fleet.store.installation(connection, cluster_id, OPERATOR_ID)
    assert installation is not None
    assert installation.revision == 1


async def test_a_rollback_without_health_checks_records_the_revision_that_it_made(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(DirectStrategy(skip_health_checks=True))
    await fleet.run()
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    await fleet.run()
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (3, OLD)
    (cluster_id,) = fleet.clusters.clusters
    async with database.transaction() as connection:
        installation = await fleet.store.installation(connection, cluster_id, OPERATOR_ID)
    assert installation is not None
    assert installation.revision == 3


async def test_a_rollout_under_way_is_rolled_back_to_what_the_deployment_before_left(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    await fleet.create(DirectStrategy())
    await fleet.run()
    made = await fleet.create(CANARY, version="3.0.0")
    await fleet.settle()
    waiting = (await fleet.targets(made.id))["dev-1"]
    assert (waiting.step, waiting.waits_for) == (TargetStep.VALIDATE, "the end of the soak")
    await fleet.deployments.rollback(ADMIN, made.id, reason="the wrong version")
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.ROLLED_BACK
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {NEW}


async def test_a_rollback_cannot_be_rolled_back_and_says_so(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.run()
    await fleet.deployments.rollback(ADMIN, made.id, reason="enough")
    with pytest.raises(StateConflict, match="being rolled back already"):
        await fleet.deployments.rollback(ADMIN, made.id, reason="twice")
    await fleet.run()
    with pytest.raises(StateConflict, match="RolledBack cannot become RollingBack"):
        await fleet.deployments.rollback(ADMIN, made.id, reason="back again")
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (3, OLD)


def never_open() -> dict[str, Any]:
    """Return the columns of a cluster with a freeze until the end of the calendar, and windows."""
    window = MaintenanceWindow((Weekday.MONDAY,), "02:30", timedelta(minutes=10), "Europe/Berlin")
    freeze = ChangeFreeze(START - MINUTE, datetime(9999, 12, 31, 23, 59, tzinfo=UTC), "end of life")
    return {"windows": msgspec.to_builtins([window]), "freezes": msgspec.to_builtins([freeze])}


async def test_a_cluster_whose_windows_never_open_is_a_problem_of_the_plan(database: Database) -> None:
    fleet = await started(database, "dev-1")
    await fleet.update_cluster("dev-1", **never_open())
    made = await fleet.create(CANARY)
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert "the freeze 'end of life' lasts until 9999-12-31" in deployment.message
    assert "none opens in the years to come" in deployment.message


async def test_a_cluster_that_is_frozen_for_good_after_the_plan_pauses_the_deployment(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.update_cluster("dev-2", **never_open())
    await fleet.pass_time(MINUTE * 3)
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert deployment.message.startswith("dev-2: the freeze 'end of life' lasts until 9999-12-31")
    assert (await fleet.targets(made.id))["dev-2"].reason == "NeverOpen"
    await fleet.update_cluster("dev-2", windows=[], freezes=[])
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.run()
    assert await phase_of(fleet, made) is DeploymentPhase.COMPLETED


async def test_a_release_that_is_uninstalled_in_validation_pauses_the_deployment_and_is_named(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-1"].records.clear()
    await fleet.pass_time(PATIENCE / 2)
    waiting = (await fleet.targets(made.id))["dev-1"]
    assert waiting.waits_for == "evidence of health: expected revision 2, saw no release"
    await fleet.pass_time(PATIENCE * 2)
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert "expected revision 2, saw no release" in deployment.message


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_bad_version_goes_back_from_every_one_of_a_hundred_clusters(database: Database) -> None:
    names = tuple(f"dev-{number:03}" for number in range(100))
    fleet = await started(database, *names)
    fleet.clusters.unhealthy = {("dev-099", NEW)}
    made = await fleet.create(CanaryStrategy(percentages=(10, 50, 100), evaluation_period=MINUTE))
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert (deployment.phase, deployment.message) == (
        DeploymentPhase.ROLLED_BACK,
        "dev-099: the controller fails",
    )
    assert deployment.rollback_started_at is not None
    assert deployment.finished_at is not None
    assert deployment.finished_at - deployment.rollback_started_at < 3 * MINUTE
    assert {each.chart_of(RELEASE)[1] for each in fleet.clusters.clusters.values()} == {OLD}

"""The rollout engine in virtual time: the four strategies, rollback, and what people may ask of it."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow, Weekday
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, DeploymentPhase, OfflinePolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRef
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
)
from kapsa.fleet.domain.rollout.targets import TargetState, TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.rollout_harness import NEW, OLD, PATIENCE, RELEASE, RolloutHarness

DEV = ("dev-1", "dev-2", "dev-3")
MINUTE = timedelta(minutes=1)
CANARY = CanaryStrategy(percentages=(30, 100), evaluation_period=MINUTE)
GREEN = ReleaseRef("cert-manager-green", "green")
BLUE_GREEN = BlueGreenStrategy("blue", "green", validation_period=MINUTE, monitoring_period=MINUTE)


async def started(database: Database, *names: str, **options: Any) -> RolloutHarness:
    fleet = RolloutHarness(database, *names)
    await fleet.register(**options)
    return fleet


async def steps(fleet: RolloutHarness, made: Any) -> dict[str, TargetStep]:
    return {name: target.step for name, target in (await fleet.targets(made.id)).items()}


@pytest.mark.parametrize(
    "strategy",
    [
        CANARY,
        RollingStrategy(validation_period=MINUTE),
        DirectStrategy(),
        DirectStrategy(skip_health_checks=True),
    ],
    ids=["canary", "rolling", "direct", "direct without checks"],
)
async def test_a_deployment_completes_with_one_upgrade_on_each_cluster(
    database: Database, strategy: Any
) -> None:
    fleet = await started(database, *DEV)
    made = await fleet.create(strategy)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    for name in DEV:
        assert fleet.clusters[name].chart_of(RELEASE) == (2, NEW)
        assert fleet.clusters[name].completed == ["upgrade operators/cert-manager 2"]
    assert await fleet.engine.next_due() is None


async def test_a_stage_soaks_before_the_next_begins(database: Database) -> None:
    fleet = await started(database, *DEV)
    await fleet.create(CANARY)
    await fleet.pass_time(MINUTE - timedelta(seconds=1))
    assert [name for name in DEV if fleet.clusters[name].completed] == ["dev-1"]
    await fleet.pass_time(timedelta(seconds=1))
    assert [name for name in DEV if fleet.clusters[name].completed] == list(DEV)


async def test_three_failed_checks_roll_back_finished_stages_too_within_three_minutes(
    database: Database,
) -> None:
    fleet = await started(database, *DEV)
    fleet.clusters.unhealthy = {("dev-3", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.ROLLED_BACK
    assert deployment.message == "dev-3: the controller fails"
    assert deployment.finished_at is not None
    assert deployment.rollback_started_at is not None
    assert deployment.finished_at - deployment.rollback_started_at < timedelta(minutes=3)
    for name in DEV:
        assert fleet.clusters[name].chart_of(RELEASE) == (3, OLD)
        assert fleet.clusters[name].crds == []


async def test_a_rollback_is_announced_to_webhooks_once_without_its_cause(database: Database) -> None:
    fleet = await started(database, *DEV)
    fleet.clusters.unhealthy = {("dev-3", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    first, last = fleet.outbox.events
    assert (first.type, last.type) == ("deployment.rollingBack", "deployment.rolledBack")
    assert last.data == {
        "deployment": str(made.id),
        "operator": "cert-manager",
        "version": "2.0.0",
        "phase": "RolledBack",
        "previousPhase": "RollingBack",
        "attempt": 1,
        "requestedBy": made.requested_by,
        "url": f"https://fleet.example.com/api/v1/deployments/{made.id}",
    }


async def test_the_rollback_of_a_chart_that_is_deployed_again_leaves_the_crds_of_its_first_deployment(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    first = await fleet.create(CANARY)
    await fleet.run()
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    again = await fleet.create(CANARY)
    await fleet.run()
    assert (await fleet.deployment(again.id)).phase is not DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].crds == [first.id]
    assert fleet.clusters["dev-1"].crd_bases[1:] == [NEW]


async def test_a_conclusive_failure_rolls_back_after_one_check(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy, fleet.clusters.conclusive = {("dev-1", NEW)}, True
    made = await fleet.create(CANARY)
    await fleet.settle()
    deployment = await fleet.deployment(made.id)
    assert (deployment.phase, deployment.finished_at) == (DeploymentPhase.ROLLED_BACK, START)


async def test_a_version_that_fails_after_its_gate_is_still_rolled_back(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(RollingStrategy(validation_period=MINUTE))
    await fleet.pass_time(MINUTE)
    assert (await steps(fleet, made))["dev-1"] is TargetStep.WATCH
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-2"].completed == []


async def test_a_bad_version_is_withdrawn_and_nothing_deploys_it_again(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    with pytest.raises(StateConflict, match="withdrawn: rolled back by deployment"):
        await fleet.create(CANARY)
    with pytest.raises(StateConflict, match="withdrawn"):
        await fleet.deployments.retry(DEPLOYER, made.id)
    with pytest.raises(NotAllowed):
        await fleet.create(CANARY, force_reason="I know better")
    fleet.clusters.unhealthy = set()
    forced = await fleet.create(CANARY, by=ADMIN, force_reason="the image was fixed")
    await fleet.run()
    assert (await fleet.deployment(forced.id)).phase is DeploymentPhase.COMPLETED


async def test_a_rollback_pauses_new_deployments_of_the_operator(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    one, two = ({"targets": fleet_selector(name)} for name in ("dev-1", "dev-2"))
    queued = await fleet.create(CANARY, **two, version="3.0.0")
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    bad = await fleet.create(CANARY, **one)
    while (await fleet.deployment(bad.id)).phase is not DeploymentPhase.ROLLING_BACK:
        if not await fleet.engine.run_due():
            fleet.set_time(await fleet.engine.next_due())
    with pytest.raises(StateConflict, match="a rollback of cert-manager is under way"):
        await fleet.create(CANARY, **two, version="1.0.0")
    await fleet.run()
    assert (await fleet.deployment(queued.id)).phase is DeploymentPhase.COMPLETED


def fleet_selector(*names: str) -> Any:
    return ClusterSelector(names)


async def test_a_failed_rollback_ends_failed_and_visible_and_not_in_a_loop(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy, fleet.clusters.rollback_fails = {("dev-1", NEW)}, True
    made = await fleet.create(CANARY)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert deployment.message == 'the rollback failed on dev-1: Rollback "cert-manager" failed: timed out'
    assert len([each for each in fleet.clusters["dev-1"].completed if "rollback" in each]) == 1
    fleet.clusters.rollback_fails = False
    await fleet.deployments.rollback(ADMIN, made.id, reason="the API server is back")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (4, OLD)


async def test_an_admin_rolls_a_completed_deployment_back(database: Database) -> None:
    fleet = await started(database, *DEV)
    made = await fleet.create(CANARY)
    await fleet.run()
    with pytest.raises(NotAllowed):
        await fleet.deployments.rollback(DEPLOYER, made.id, reason="x")
    await fleet.deployments.rollback(ADMIN, made.id, reason="users complain")
    await fleet.run()
    status = await fleet.deployments.rollback_status(DEPLOYER, made.id)
    assert (status.phase, status.reason) == (DeploymentPhase.ROLLED_BACK, "users complain")
    assert {cluster.state for cluster in status.clusters} == {TargetState.ROLLED_BACK}


async def test_an_earlier_deployment_is_not_rolled_back_past_a_later_one(database: Database) -> None:
    fleet = await started(database, "dev-1")
    first = await fleet.create(CANARY)
    await fleet.run()
    await fleet.create(CANARY, version="3.0.0")
    await fleet.run()
    with pytest.raises(StateConflict, match="a later deployment has changed dev-1"):
        await fleet.deployments.rollback(ADMIN, first.id, reason="x")


async def test_the_first_install_is_rolled_back_by_an_uninstall(database: Database) -> None:
    fleet = await started(database, "dev-1", installed=False)
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    made = await fleet.create(CANARY)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-1"].completed[-1] == "uninstall operators/cert-manager"


async def test_a_rollback_leaves_the_fields_that_the_plan_leaves_to_their_owners(database: Database) -> None:
    fleet = await started(database, "dev-1")
    left = (FieldConflict("ConfigMap widgets/tuned", ".data.level", "tuner"),)
    fleet.sources.report = {"conflicts": left}
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    for policy, expected in ((ConflictPolicy.LEAVE, left), (ConflictPolicy.TAKE, ())):
        made = await fleet.create(CANARY, by=ADMIN, on_conflict=policy, force_reason="again")
        await fleet.run()
        assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
        assert fleet.clusters["dev-1"].left == expected


async def test_a_gate_accepts_the_fields_that_the_plan_leaves_to_their_owners(database: Database) -> None:
    fleet = await started(database, "dev-1")
    left = (FieldConflict("Deployment widgets/controller", ".spec.template.spec.priority", "tuner"),)
    fleet.sources.report = {"conflicts": left}
    await fleet.create(CANARY, on_conflict=ConflictPolicy.TAKE)
    await fleet.run()
    assert fleet.clusters["dev-1"].accepted == ()
    await fleet.create(CANARY, version="3.0.0", on_conflict=ConflictPolicy.LEAVE)
    await fleet.run()
    assert fleet.clusters["dev-1"].accepted == left


async def test_the_baseline_accepts_the_additions_to_templates_that_the_plan_of_the_cluster_names(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    added = (FieldConflict("Deployment widgets/controller", ".spec.template.spec.priority", "tuner"),)
    fleet.sources.report = {"additions": added}
    made = await fleet.create(CANARY)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert [fleet.clusters[name].additions for name in ("dev-1", "dev-2")] == [added, added]


async def test_a_template_that_somebody_changed_pauses_a_deployment_and_stops_no_rollback(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.drifted = {("dev-1", NEW), ("dev-1", OLD)}
    for strategy in (CANARY, BLUE_GREEN):
        made = await fleet.create(strategy, by=ADMIN, force_reason="again")
        await fleet.run()
        deployment = await fleet.deployment(made.id)
        assert deployment.phase is DeploymentPhase.PAUSED
        assert "image was changed by kubectl-edit" in deployment.message
        await fleet.deployments.rollback(ADMIN, made.id, reason="take it back")
        await fleet.run()
        assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK


async def test_a_change_that_a_controller_ignores_pauses_once_and_is_accepted_by_a_resume(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    message = "1 of 1000 Widget are newly not current; tenant/paused is not reconciled"
    finding = HealthCheck(CheckKind.RESOURCES, Evidence.UNKNOWN, "NoReconciliation", message)
    fleet.clusters.findings = {("dev-1", NEW): finding}
    made = await fleet.create(CANARY)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert message in deployment.message
    await fleet.deployments.resume(ADMIN, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


# Clusters that are away, busy or closed


async def test_an_offline_cluster_is_late_and_stops_no_other(database: Database) -> None:
    fleet = await started(database, *DEV)
    made = await fleet.create(CANARY)
    await fleet.pass_time(timedelta(seconds=20))
    fleet.clusters["dev-2"].offline = True
    await fleet.pass_time(timedelta(seconds=110))
    deployment = await fleet.deployment(made.id)
    assert deployment.waits_for == "dev-2 to come back online"
    assert deployment.deadline is not None
    assert fleet.clusters["dev-3"].chart_of(RELEASE) == (2, NEW)
    fleet.clusters["dev-2"].offline = False
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (2, NEW)


@pytest.mark.parametrize("policy", OfflinePolicy)
async def test_an_offline_cluster_is_skipped_by_policy_or_when_patience_ends(
    database: Database, policy: Any
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY, on_offline=policy)
    await fleet.settle()
    fleet.clusters["dev-2"].offline = True
    await fleet.run()
    target = (await fleet.targets(made.id))["dev-2"]
    assert (target.step, target.reason) == (TargetStep.SKIPPED, "Offline")
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.now - START >= (PATIENCE if policy is OfflinePolicy.WAIT else MINUTE)


async def test_a_cluster_that_goes_away_after_its_change_pauses_and_does_not_roll_back(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-1"].offline = True
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert deployment.message == "dev-1: no evidence of health: dev-1: no route to host"
    assert fleet.clusters["dev-2"].completed == []
    fleet.clusters["dev-1"].offline = False
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


@pytest.mark.parametrize("moment", [timedelta(), timedelta(seconds=30), timedelta(minutes=2)])
async def test_a_deleted_cluster_is_skipped_and_stops_no_other(database: Database, moment: timedelta) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.pass_time(moment)
    await fleet.delete_cluster("dev-1")
    await fleet.run()
    target = (await fleet.targets(made.id))["dev-1"]
    assert target.step in (TargetStep.SKIPPED, TargetStep.DONE)
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (2, NEW)


async def test_a_pending_release_of_another_client_is_left_alone_and_reported(database: Database) -> None:
    fleet = await started(database, "dev-1")
    cluster = fleet.clusters["dev-1"]
    made = await fleet.create(CANARY)
    cluster.put(RELEASE, 1, HelmStatus.PENDING_UPGRADE)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert "was not made by this deployment" in deployment.message
    assert cluster.completed == []
    assert cluster.history(RELEASE)[0].status is HelmStatus.PENDING_UPGRADE


async def test_a_release_that_changed_since_the_plan_is_not_touched(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-2"].install_by_hand(RELEASE, OLD)
    await fleet.pass_time(timedelta(minutes=3))
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert "the plan was made for revision 1" in deployment.message
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (3, NEW)
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)


async def test_a_maintenance_window_is_awaited_before_the_cluster_and_named(database: Database) -> None:
    fleet = await started(database, "dev-1")
    window = MaintenanceWindow((Weekday.MONDAY,), "13:00", timedelta(hours=2))
    await fleet.update_cluster("dev-1", windows=msgspec.to_builtins((window,)))
    made = await fleet.create(CANARY)
    await fleet.settle()
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert (cluster.waits_for, cluster.deadline) == ("no maintenance window is open", START.replace(hour=13))
    (planned,) = (await fleet.deployments.plan(DEPLOYER, made.id)).plan.clusters
    opening = START.replace(hour=13)
    assert planned.notices == (
        f"no maintenance window is open; the cluster is changed from {opening:%Y-%m-%d %H:%M} UTC on",
    )
    assert fleet.clusters["dev-1"].completed == []
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.now >= START.replace(hour=13)


@pytest.mark.long
async def test_a_freeze_that_is_lifted_early_is_noticed_within_a_minute(database: Database) -> None:
    fleet = await started(database, "dev-1")
    freeze = ChangeFreeze(START - MINUTE, START + timedelta(days=9), "year end")
    await fleet.update_cluster("dev-1", freezes=msgspec.to_builtins((freeze,)))
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.pass_time(timedelta(hours=1))
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert cluster.waits_for.startswith("the freeze 'year end' lasts until")
    assert cluster.deadline == START + timedelta(days=9)
    await fleet.update_cluster("dev-1", freezes=[])
    await fleet.pass_time(timedelta(minutes=2))
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_cluster_that_is_away_when_its_window_opens_is_tried_again(database: Database) -> None:
    fleet = await started(database, "dev-1")
    window = MaintenanceWindow((Weekday.MONDAY,), "13:00", timedelta(hours=2))
    await fleet.update_cluster("dev-1", windows=msgspec.to_builtins((window,)))
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-1"].offline = True
    await fleet.pass_time(START.replace(hour=13) + MINUTE - fleet.now)
    fleet.clusters["dev-1"].offline = False
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)


async def test_an_admin_overrides_a_freeze_with_a_reason(database: Database) -> None:
    fleet = await started(database, "dev-1")
    freeze = ChangeFreeze(START - MINUTE, START + timedelta(days=9), "year end")
    await fleet.update_cluster("dev-1", freezes=msgspec.to_builtins((freeze,)))
    with pytest.raises(NotAllowed):
        await fleet.create(CANARY, window_override_reason="please")
    made = await fleet.create(CANARY, by=ADMIN, window_override_reason="CVE-2027-1")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.audit.entries[-1].payload["windowOverrideReason"] == "CVE-2027-1"
    (planned,) = (await fleet.deployments.plan(ADMIN, made.id)).plan.clusters
    assert planned.notices[0].endswith("; set aside: CVE-2027-1")


# Pause, resume, abort, retry, limits


async def test_a_pause_lets_no_further_cluster_begin_until_it_is_resumed(database: Database) -> None:
    fleet = await started(database, *DEV)
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.pause(DEPLOYER, made.id)
    await fleet.pass_time(timedelta(minutes=2))
    assert [name for name in DEV if fleet.clusters[name].completed] == ["dev-1"]
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_paused_deployment_still_rolls_a_failing_version_back(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.pause(DEPLOYER, made.id)
    fleet.clusters.unhealthy = {("dev-1", NEW)}
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK


async def test_an_aborted_deployment_leaves_clusters_as_they_are_and_frees_them(database: Database) -> None:
    fleet = await started(database, *DEV)
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ABORTED
    assert await steps(fleet, made) == {
        "dev-1": TargetStep.ABORTED,
        "dev-2": TargetStep.SKIPPED,
        "dev-3": TargetStep.SKIPPED,
    }
    with pytest.raises(StateConflict, match="cannot be aborted"):
        await fleet.deployments.abort(DEPLOYER, made.id)
    again = await fleet.create(CANARY, version="3.0.0")
    await fleet.run()
    assert (await fleet.deployment(again.id)).phase is DeploymentPhase.COMPLETED


async def test_a_retry_finishes_what_is_left_and_a_rollback_then_goes_back_all_the_way(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert (deployment.phase, deployment.attempt) == (DeploymentPhase.COMPLETED, 2)
    await fleet.deployments.rollback(ADMIN, made.id, reason="x")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (4, OLD)
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (3, OLD)


async def test_one_deployment_of_an_operator_is_active_on_a_cluster(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    with pytest.raises(StateConflict, match="another deployment of cert-manager is active"):
        await fleet.create(CANARY)
    await fleet.create(CANARY, targets=fleet_selector("dev-2"))


async def test_deployments_beyond_the_limit_wait_for_their_turn_and_say_so(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    engine = fleet.replica("small", max_concurrent_deployments=1)
    first = await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    second = await fleet.create(CANARY, targets=fleet_selector("dev-2"))
    await fleet.settle(engine)
    phases = {(await fleet.deployment(each.id)).phase for each in (first, second)}
    assert phases == {DeploymentPhase.VALIDATING, DeploymentPhase.PLANNING}
    waits = {(await fleet.deployment(each.id)).waits_for for each in (first, second)}
    assert "one of the 1 deployments at work to end" in waits
    await fleet.run(engine)
    for each in (first, second):
        assert (await fleet.deployment(each.id)).phase is DeploymentPhase.COMPLETED


async def test_only_the_planned_bytes_are_applied(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.run()
    plan = await fleet.deployments.plan(DEPLOYER, made.id)
    (applied,) = fleet.clusters["dev-1"].manifests
    assert plan.plan.clusters[0].manifest_digest == "sha256:" + sha256(applied).hexdigest()


async def test_an_unexpected_error_in_a_port_is_reported_and_tried_again(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    failures = iter([True, True])

    async def fail(call: str) -> None:
        if call.endswith("observe") and next(failures, False):
            raise RuntimeError("the sweep broke")

    fleet.clusters.on_call = fail
    await fleet.settle()
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert cluster.waits_for == "RuntimeError: the sweep broke"
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_an_error_in_the_last_check_of_a_soak_is_tried_again(database: Database) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.settle()
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert cluster.waits_for == "the end of the soak"
    failures = iter([True])

    async def fail(call: str) -> None:
        if fleet.now >= START + MINUTE and call.endswith("observe") and next(failures, False):
            raise RuntimeError("the database was away")

    fleet.clusters.on_call = fail
    await fleet.pass_time(MINUTE)
    (cluster,) = (await fleet.deployments.get(DEPLOYER, made.id)).clusters
    assert cluster.waits_for == "RuntimeError: the database was away"
    await fleet.run()
    assert next(failures, False) is False
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_cluster_that_is_not_ready_as_its_window_opens_is_tried_again(database: Database) -> None:
    fleet = await started(database, "dev-1")
    window = MaintenanceWindow((Weekday.MONDAY,), "13:00", timedelta(hours=2))
    await fleet.update_cluster("dev-1", windows=msgspec.to_builtins((window,)))
    made = await fleet.create(CANARY)
    await fleet.settle()
    refusals = iter([True])

    async def refuse(call: str) -> None:
        if fleet.now >= START.replace(hour=13) and call.endswith("history") and next(refusals, False):
            raise ClusterNotReady("the namespace is being created")

    fleet.clusters.on_call = refuse
    await fleet.run()
    assert next(refusals, False) is False
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_deployment_that_cannot_be_planned_for_an_unforeseen_reason_stops_no_other(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    sound = await fleet.create(CANARY, targets=fleet_selector("dev-2"))

    async def fail(call: str) -> None:
        if call == "dev-1 inspect":
            raise RuntimeError("the inspector broke")

    fleet.clusters.on_call = fail
    await fleet.pass_time(timedelta(minutes=3))
    assert (await fleet.deployment(sound.id)).phase is DeploymentPhase.COMPLETED


async def test_a_late_renewal_does_not_bring_a_released_lease_back(database: Database) -> None:
    fleet = await started(database, "dev-1")
    await fleet.create(CANARY)
    async with database.transaction() as connection:
        (claim,) = await fleet.store.claim(connection, "a", MINUTE, limit=1)
        assert await fleet.store.renew(connection, claim, MINUTE)
        assert await fleet.store.hand_back(connection, claim)
        assert not await fleet.store.renew(connection, claim, MINUTE)
        assert await fleet.store.claim(connection, "b", MINUTE, limit=1)


async def test_a_plan_says_how_many_values_are_hidden_that_nobody_declared_secret(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.sources.values = {"repository": "https://user:word@charts.example.com", "level": "info"}
    made = await fleet.create(CANARY)
    await fleet.settle()
    (planned,) = (await fleet.deployments.plan(DEPLOYER, made.id)).plan.clusters
    (notice,) = planned.notices
    assert notice.startswith("1 value is hidden that no one declared secret")
    assert planned.values["level"] == "info"

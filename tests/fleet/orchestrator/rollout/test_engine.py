"""The rollout engine in virtual time: strategies, gates, and what people may ask of it."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.registry.windows import MaintenanceWindow, Weekday
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, DeploymentPhase
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.strategies import DirectStrategy, RollingStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.orchestrator.rollout.rollouts import (
    BLUE_GREEN,
    CANARY,
    DEV,
    MINUTE,
    fleet_selector,
    started,
    steps,
)
from tests.fleet.rollout_harness import NEW, OLD, PATIENCE, RELEASE

pytestmark = pytest.mark.sampled(10, of="module")


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


FOREIGN = tuple(
    FieldConflict("ConfigMap operators/log", f".data.{key}", "kubectl-edit") for key in ("level", "format")
)


@pytest.mark.parametrize("policy", ConflictPolicy)
async def test_a_field_that_is_taken_after_the_plan_pauses_the_deployment_and_blames_no_version(
    database: Database, policy: ConflictPolicy
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    planned = FOREIGN[:1] if policy is not ConflictPolicy.FAIL else ()
    fleet.sources.report = {"conflicts": planned}
    made = await fleet.create(CANARY, on_conflict=policy)
    await fleet.settle()
    # The manifest of `leave` does not have the planned field: it conflicts no more.
    seen = FOREIGN if policy is ConflictPolicy.TAKE else FOREIGN[1:]
    fleet.clusters.conflicting = {"dev-1": FOREIGN, "dev-2": seen}
    await fleet.pass_time(2 * MINUTE)
    paused = await fleet.deployment(made.id)
    assert paused.phase is DeploymentPhase.PAUSED
    assert ".data.format of ConfigMap operators/log is owned by kubectl-edit, which" in paused.message
    assert await steps(fleet, made) == {"dev-1": TargetStep.WATCH, "dev-2": TargetStep.PREPARE}
    assert (await fleet.targets(made.id))["dev-2"].reason == "ChangedSincePlan"
    assert fleet.clusters["dev-2"].completed == []
    assert (await fleet.summary(made.id))["withdrawn"] == ""
    fleet.clusters.conflicting = {"dev-2": planned if policy is ConflictPolicy.TAKE else ()}
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED


async def test_a_field_that_is_taken_while_helm_runs_pauses_the_deployment_until_it_is_planned_again(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    cause = "conflict occurred while applying object operators/log /v1, Kind=ConfigMap: Apply failed"
    fleet.clusters.conflict_while_applying = cause
    made = await fleet.create(CANARY)
    await fleet.run()
    for _ in range(2):  # a resume finds the failed revision of the same deployment
        paused = await fleet.deployment(made.id)
        assert paused.phase is DeploymentPhase.PAUSED
        assert cause in paused.message
        assert (await fleet.targets(made.id))["dev-1"].reason == "ChangedByOther"
        await fleet.deployments.resume(DEPLOYER, made.id)
        await fleet.run()
    assert (await fleet.summary(made.id))["withdrawn"] == ""
    assert fleet.clusters["dev-1"].completed == ["upgrade operators/cert-manager 2 failed"]
    fleet.clusters.conflict_while_applying = ""
    await fleet.deployments.abort(DEPLOYER, made.id)
    await fleet.run()
    await fleet.deployments.retry(DEPLOYER, made.id)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (3, NEW)


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


async def test_a_deployment_that_gets_no_turn_in_time_fails_and_says_what_was_in_its_way(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    slow = dict.fromkeys(("retry_interval", "check_interval"), timedelta(minutes=15))
    small = {"max_concurrent_deployments": 1, "queue_patience": timedelta(hours=3), **slow}
    first = await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    await fleet.settle(fleet.replica("one", **small))
    await fleet.deployments.pause(DEPLOYER, first.id)
    second = await fleet.create(CANARY, targets=fleet_selector("dev-2"))
    began, cause = fleet.now, "one of the 1 deployments at work to end"
    for hours in (1, 1):
        await fleet.pass_time(timedelta(hours=hours), fleet.replica("next", **small))
        waiting = await fleet.deployment(second.id)
        assert (waiting.phase, waiting.waits_for) == (DeploymentPhase.PLANNING, cause)
        assert waiting.deadline == began + timedelta(hours=3)
    await fleet.pass_time(timedelta(hours=1), fleet.replica("last", **small))
    failed = await fleet.deployment(second.id)
    assert (failed.phase, failed.finished_at) == (DeploymentPhase.FAILED, began + timedelta(hours=3))
    assert failed.message == f"NoTurn: waited 3 hours for {cause}. Retry the deployment to wait again"
    assert (failed.waits_for, failed.deadline) == ("", None)
    assert fleet.clusters["dev-2"].completed == []

    await fleet.deployments.retry(DEPLOYER, second.id)
    await fleet.settle(fleet.replica("retry", **small))
    again = await fleet.deployment(second.id)
    assert (again.phase, again.deadline) == (DeploymentPhase.PLANNING, fleet.now + timedelta(hours=3))
    await fleet.deployments.abort(DEPLOYER, first.id)
    await fleet.run()
    assert (await fleet.deployment(second.id)).phase is DeploymentPhase.COMPLETED


async def test_the_wait_for_a_rollback_of_the_operator_has_a_deadline(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    queued = await fleet.create(CANARY, targets=fleet_selector("dev-2"), version="3.0.0")
    bad = await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE fleet.deployment SET phase = 'RollingBack', next_run_at = NULL WHERE id = :i"),
            {"i": bad.id},
        )
    await fleet.settle()
    waiting = await fleet.deployment(queued.id)
    assert waiting.waits_for == "a rollback of cert-manager to end"
    assert waiting.deadline == fleet.now + timedelta(days=1)


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


async def test_a_deployment_that_cannot_be_planned_for_an_unforeseen_reason_ends_with_it_and_stops_no_other(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    broken = await fleet.create(CANARY, targets=fleet_selector("dev-1"))
    sound = await fleet.create(CANARY, targets=fleet_selector("dev-2"))

    async def fail(call: str) -> None:
        if call == "dev-1 inspect":
            raise RuntimeError("the inspector broke")

    fleet.clusters.on_call = fail
    await fleet.settle()
    waiting = await fleet.deployment(broken.id)
    assert (waiting.phase, waiting.waits_for) == (
        DeploymentPhase.PLANNING,
        "RuntimeError: the inspector broke",
    )
    assert waiting.deadline == START + PATIENCE
    await fleet.pass_time(timedelta(minutes=3))
    failed = await fleet.deployment(broken.id)
    assert (failed.phase, failed.message) == (
        DeploymentPhase.FAILED,
        "no plan could be made: RuntimeError: the inspector broke",
    )
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

"""Rollbacks: a version that fails is taken back from every cluster that it reached."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, DeploymentPhase
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import HelmStatus
from kapsa.fleet.domain.rollout.strategies import RollingStrategy
from kapsa.fleet.domain.rollout.targets import TargetState, TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.helm_double import too_busy, undisturbed
from tests.fleet.orchestrator.rollout.rollouts import CANARY, DEV, MINUTE, fleet_selector, started, steps
from tests.fleet.rollout_harness import NEW, OLD, RELEASE

pytestmark = pytest.mark.sampled(7, of="module")


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


async def test_a_rollback_that_failed_half_way_is_made_again_when_a_person_asks(database: Database) -> None:
    fleet = await started(database, "dev-1")
    fleet.clusters.unhealthy = {("dev-1", NEW)}

    def busy_rollback(call: str) -> Any:
        return too_busy(call) if call == "rollback" else undisturbed(call)

    fleet.clusters.interrupt = busy_rollback
    made = await fleet.create(CANARY)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.FAILED
    assert fleet.clusters["dev-1"].history(RELEASE)[-1].status is HelmStatus.PENDING_ROLLBACK
    fleet.clusters.interrupt = undisturbed
    await fleet.deployments.rollback(ADMIN, made.id, reason="the API server is back")
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.ROLLED_BACK
    history = fleet.clusters["dev-1"].history(RELEASE)
    assert [(each.revision, each.status.value) for each in history] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "deployed"),
    ]


async def test_a_pending_rollback_of_a_person_is_left_alone_although_it_looks_like_ours(
    database: Database,
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    await fleet.run()
    cluster = fleet.clusters["dev-1"]
    cluster.put(
        RELEASE,
        3,
        HelmStatus.PENDING_ROLLBACK,
        labels=cluster.history(RELEASE)[0].labels,
        description="Rollback to 1",
    )
    before = list(cluster.history(RELEASE))
    await fleet.deployments.rollback(ADMIN, made.id, reason="it loses data")
    await fleet.run()
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.FAILED
    assert "revision 3" in deployment.message
    assert "was not made by this deployment" in deployment.message
    assert cluster.history(RELEASE) == before


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

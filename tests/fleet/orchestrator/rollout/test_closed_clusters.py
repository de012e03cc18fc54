"""Clusters that are away, busy, deleted, or closed by a window or a freeze while a rollout wants to change them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kapsa.fleet.domain.errors import NotAllowed
from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow, Weekday
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, OfflinePolicy
from kapsa.fleet.domain.rollout.releases import HelmStatus
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from tests.fleet.examples import ADMIN, DEPLOYER, START
from tests.fleet.orchestrator.rollout.rollouts import CANARY, DEV, MINUTE, started
from tests.fleet.rollout_harness import NEW, OLD, PATIENCE, RELEASE

pytestmark = pytest.mark.sampled(8, of="module")


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


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (CredentialUnavailable("Vault is sealed"), ClusterUnreachable("no route to host")),
        (ClusterNotReady("too early"), ClusterUnreachable("no route to host")),
        (RuntimeError("the history broke"), ClusterUnreachable("no route to host")),
        (ClusterUnreachable("no route to host"), CredentialUnavailable("Vault is sealed")),
    ],
    ids=["keys away", "not ready", "internal error", "offline, then keys away"],
)
async def test_the_patience_for_one_trouble_is_not_used_up_by_another(
    database: Database, first: Exception, then: Exception
) -> None:
    fleet = await started(database, "dev-1")
    made = await fleet.create(CANARY)
    change = START + PATIENCE - timedelta(seconds=15)

    async def trouble(call: str) -> None:
        if call == "dev-1 history":
            raise first if fleet.now < change else then

    fleet.clusters.on_call = trouble
    await fleet.pass_time(PATIENCE + MINUTE)
    target = (await fleet.targets(made.id))["dev-1"]
    assert (target.step, target.stalled, target.waits_for) == (TargetStep.PREPARE, "", str(then))
    assert target.deadline is not None
    assert change + PATIENCE <= target.deadline <= change + PATIENCE + timedelta(seconds=30)
    fleet.clusters.on_call = None
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)


@pytest.mark.parametrize("policy", OfflinePolicy)
@pytest.mark.parametrize("act", ["conflicts", "record_baseline"])
async def test_a_cluster_that_is_busy_right_before_its_change_is_not_offline(
    database: Database, policy: Any, act: str
) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    busy = START + MINUTE + timedelta(seconds=40)

    async def trouble(call: str) -> None:
        if call == f"dev-1 {act}" and fleet.now < busy:
            raise ClusterUnreachable("the API server answered 503")

    fleet.clusters.on_call = trouble
    made = await fleet.create(CANARY, on_offline=policy)
    await fleet.pass_time(MINUTE)
    target = (await fleet.targets(made.id))["dev-1"]
    assert (target.step, target.waits_for, target.late) == (
        TargetStep.PREPARE,
        "the API server answered 503",
        False,
    )
    assert fleet.clusters["dev-2"].completed == []
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-1"].chart_of(RELEASE) == (2, NEW)


async def test_a_cluster_that_was_late_before_a_pause_is_tried_again_after_it(database: Database) -> None:
    fleet = await started(database, "dev-1", "dev-2")
    made = await fleet.create(CANARY)
    await fleet.settle()
    fleet.clusters["dev-2"].offline = True
    await fleet.pass_time(MINUTE + timedelta(seconds=15))
    assert (await fleet.deployment(made.id)).waits_for == "dev-2 to come back online"
    await fleet.deployments.pause(DEPLOYER, made.id)
    await fleet.pass_time(2 * PATIENCE)
    await fleet.deployments.resume(DEPLOYER, made.id)
    await fleet.settle()
    late = (await fleet.targets(made.id))["dev-2"]
    assert (late.step, late.offline_since) == (TargetStep.PREPARE, fleet.now)
    fleet.clusters["dev-2"].offline = False
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    assert fleet.clusters["dev-2"].chart_of(RELEASE) == (2, NEW)


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
    deleted = await fleet.delete_cluster("dev-1")
    await fleet.run()
    target = (await fleet.targets(made.id))[deleted]
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

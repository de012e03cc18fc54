"""The time of a rollback by itself, at the usual interval of checks, and among other work: Helm has most of three minutes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.rollout_harness import NEW, OLD, RELEASE, RolloutHarness

CLUSTERS = ("dev-1", "dev-2", "dev-3")
STAGES = CanaryStrategy(percentages=(30, 60, 100), evaluation_period=timedelta(minutes=5))
BAD = {
    "crashes": HealthCheck(CheckKind.PODS, Evidence.FAILING, "CrashLoopBackOff", "bad", conclusive=True),
    "image": HealthCheck(CheckKind.PODS, Evidence.FAILING, "ImagePullBackOff", "bad", conclusive=True),
    "wrong-ca": HealthCheck(CheckKind.WEBHOOKS, Evidence.FAILING, "WebhookCertificate", "bad"),
    "slow-webhook": HealthCheck(CheckKind.WEBHOOKS, Evidence.FAILING, "WebhookSlow", "bad"),
    "conversion": HealthCheck(CheckKind.CONVERSION, Evidence.FAILING, "ConversionFailed", "bad"),
    "idle": HealthCheck(CheckKind.LEASE, Evidence.FAILING, "LeaseNotRenewed", "bad"),
    "ignores": HealthCheck(CheckKind.RESOURCES, Evidence.FAILING, "NotReconciled", "bad"),
    "breaks-some": HealthCheck(CheckKind.RESOURCES, Evidence.FAILING, "ResourcesFailing", "bad"),
}
"""The check that sees each kind of bad version."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("late", [False, True], ids=["in-the-last-stage", "in-a-finished-stage"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_every_kind_of_bad_version_is_taken_back_from_finished_stages_too_in_less_than_a_minute(
    database: Database, bad: HealthCheck, late: bool
) -> None:
    fleet = RolloutHarness(database, *CLUSTERS)
    await fleet.register()
    made = await fleet.create(STAGES)
    if late:
        await fleet.pass_time(STAGES.evaluation_period + timedelta(minutes=2))
        steps = {name: target.step for name, target in (await fleet.targets(made.id)).items()}
        assert (steps["dev-1"], steps["dev-3"]) == (TargetStep.WATCH, TargetStep.WAIT)
    fleet.clusters.findings = {("dev-1" if late else "dev-3", NEW): bad}
    await fleet.run()
    ended = await fleet.deployment(made.id)
    assert (ended.phase, ended.message) == (
        DeploymentPhase.ROLLED_BACK,
        f"{'dev-1' if late else 'dev-3'}: bad",
    )
    reached = CLUSTERS[:2] if late else CLUSTERS
    assert {name: fleet.clusters[name].chart_of(RELEASE) for name in CLUSTERS} == {
        name: (3, OLD) if name in reached else (1, OLD) for name in CLUSTERS
    }
    targets = await fleet.targets(made.id)
    assert targets["dev-1" if late else "dev-3"].reason == bad.reason
    events = await fleet.deployments.events(DEPLOYER, made.id)
    (failed,) = [each.at for each in events if "→ Failed" in each.message]
    assert failed is not None
    assert ended.finished_at is not None
    assert ended.finished_at - failed < timedelta(minutes=1)


async def _with_two_plans_due(database: Database) -> tuple[RolloutHarness, VersionDeployment]:
    """Return a fleet with a deployment to roll back, and two others that are planned next."""
    fleet = RolloutHarness(database, *CLUSTERS)
    await fleet.register()
    made = await fleet.create(STAGES, targets=ClusterSelector(("dev-1",)))
    await fleet.run()
    for name in ("dev-2", "dev-3"):
        await fleet.create(STAGES, version="3.0.0", targets=ClusterSelector((name,)))
    fleet.clusters.calls.clear()
    return fleet, made


async def test_a_rollback_is_claimed_before_plans_that_were_due_earlier(database: Database) -> None:
    fleet, made = await _with_two_plans_due(database)
    fleet.set_time(fleet.now + timedelta(minutes=1))
    await fleet.deployments.rollback(ADMIN, made.id, reason="it loses data")
    await fleet.settle(fleet.replica("small", slots=1))
    acts = [call for call in fleet.clusters.calls if call.endswith((" rollback", " inspect"))]
    assert acts[0] == "dev-1 rollback"
    assert set(acts[1:]) == {"dev-2 inspect", "dev-3 inspect"}


async def test_plans_and_upgrades_that_take_long_leave_a_slot_to_rollbacks(database: Database) -> None:
    fleet, made = await _with_two_plans_due(database)
    planned, back, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(call: str) -> None:
        if call.endswith(" inspect"):
            planned.set()
            await go_on.wait()
        if call == "dev-1 rollback":
            back.set()

    fleet.clusters.on_call = hold
    engine = fleet.replica("small", slots=2)
    serving = asyncio.create_task(engine.serve())
    try:
        await asyncio.wait_for(planned.wait(), 60)
        await fleet.deployments.rollback(ADMIN, made.id, reason="it loses data")
        await asyncio.wait_for(back.wait(), 60)
    finally:
        go_on.set()
        engine.stop()
        await asyncio.wait_for(serving, 60)

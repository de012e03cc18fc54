"""The time of a rollback by itself, at the usual interval of checks: it leaves Helm most of three minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.examples import DEPLOYER
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

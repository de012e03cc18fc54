"""The record of the version that runs on a cluster, at the steps of a deployment."""

from __future__ import annotations

import uuid

import pytest

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.rollout.worker import installed

RELEASE = ReleaseRef("widget", "widgets")


def target(step: TargetStep) -> RolloutTarget:
    """Return a cluster that was upgraded from the adopted revision 1 to 2, and rolled back by revision 3."""
    return RolloutTarget(
        deployment_id=uuid.UUID(int=1),
        operator_id=uuid.UUID(int=2),
        cluster_id=uuid.UUID(int=3),
        cluster_name="dev",
        environment=ClusterEnvironment.DEV,
        live=RELEASE,
        next=RELEASE,
        step=step,
        revision=3,
        base_revision=1,
        base_digest="sha256:old",
        base_version="1.0.0",
    )


@pytest.mark.parametrize("step", [TargetStep.VALIDATE_REVERTED, TargetStep.ROLLED_BACK])
def test_the_version_before_is_recorded_as_soon_as_helm_has_brought_it_back(step: TargetStep) -> None:
    # Its revision may have no labels of the fleet, so that the gate of the rollback knows its chart from here only.
    record = installed("1.1.0", "sha256:new", target(step))
    assert record is not None
    assert (record.release, record.revision) == (RELEASE, 3)
    assert (record.version, record.chart_digest) == ("1.0.0", "sha256:old")


@pytest.mark.parametrize("step", [TargetStep.PREPARE_ROLLBACK, TargetStep.REVERT, TargetStep.ROLLBACK_FAILED])
def test_nothing_is_recorded_while_helm_may_be_at_work(step: TargetStep) -> None:
    assert installed("1.1.0", "sha256:new", target(step)) is None

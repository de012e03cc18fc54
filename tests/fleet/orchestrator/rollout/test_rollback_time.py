"""The time of a rollback by itself, at the usual interval of checks: it leaves Helm most of three minutes."""

from __future__ import annotations

from datetime import timedelta

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.examples import DEPLOYER
from tests.fleet.rollout_harness import NEW, RolloutHarness


async def test_a_rollback_of_finished_stages_waits_for_less_than_a_minute_after_the_third_failed_check(
    database: Database,
) -> None:
    fleet = RolloutHarness(database, "dev-1", "dev-2", "dev-3")
    await fleet.register()
    fleet.clusters.unhealthy = {("dev-3", NEW)}
    stages = CanaryStrategy(percentages=(30, 60, 100), evaluation_period=timedelta(minutes=5))
    made = await fleet.create(stages)
    await fleet.run()
    ended = await fleet.deployment(made.id)
    assert ended.phase is DeploymentPhase.ROLLED_BACK
    events = await fleet.deployments.events(DEPLOYER, made.id)
    (failed,) = [each.at for each in events if "Validate → Failed" in each.message]
    assert failed is not None
    assert ended.finished_at is not None
    assert ended.finished_at - failed < timedelta(minutes=1)

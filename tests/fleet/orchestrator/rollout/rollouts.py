"""Rollouts that several tests begin with: strategies, clusters, and a fleet on which the first version runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import BlueGreenStrategy, CanaryStrategy
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector
from tests.fleet.rollout_harness import RolloutHarness

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


def fleet_selector(*names: str) -> Any:
    return ClusterSelector(names)

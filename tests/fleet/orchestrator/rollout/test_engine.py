"""The rollout engine in virtual time: the four strategies, rollback, and what people may ask of it."""

from __future__ import annotations

import pytest

from kapsa.fleet.domain.deployments import DeploymentPhase
from kapsa.fleet.domain.strategies import CanaryStrategy, DirectStrategy, RollingStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

DEV = ("dev-1", "dev-2", "dev-3")


@pytest.mark.parametrize(
    "strategy",
    [
        CanaryStrategy(percentages=(30, 100)),
        RollingStrategy(),
        DirectStrategy(),
        DirectStrategy(skip_health_checks=True),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
async def test_a_deployment_completes(database: Database, strategy) -> None:
    fleet = RolloutHarness(database, *DEV)
    await fleet.register()
    made = await fleet.create(strategy)
    await fleet.run()
    assert (await fleet.deployment(made.id)).phase is DeploymentPhase.COMPLETED
    for name in DEV:
        assert fleet.clusters[name].chart_of(RELEASE) == (2, NEW)
        assert fleet.clusters[name].completed == ["upgrade operators/cert-manager 2"]

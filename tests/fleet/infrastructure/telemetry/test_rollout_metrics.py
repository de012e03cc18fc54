"""The metrics of rollouts in virtual time, as a scrape shows them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.fleet_counts import FleetCounts, count_fleet
from kapsa.fleet.infrastructure.telemetry.fleet_gauges import FleetGauges
from kapsa.fleet.infrastructure.telemetry.rollout_metrics import RolloutMetrics
from kapsa.fleet.infrastructure.telemetry.rollout_telemetry import RolloutTelemetry
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector
from tests.fleet.rollout_harness import NEW, RolloutHarness

CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=timedelta(minutes=1))


@pytest.fixture
def collectors() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def fleet(database: Database, collectors: CollectorRegistry) -> RolloutHarness:
    harness = RolloutHarness(
        database, "dev-1", "dev-2", reporter=RolloutTelemetry(RolloutMetrics(collectors))
    )
    await harness.register()
    return harness


def value(collectors: CollectorRegistry, name: str, **labels: str) -> float:
    sample = collectors.get_sample_value(name, labels)
    assert sample is not None, f"{name}{labels} has no sample"
    return sample


async def test_a_completed_deployment_is_counted_once_with_its_duration(
    fleet: RolloutHarness, collectors: CollectorRegistry
) -> None:
    await fleet.create(CANARY)
    await fleet.run()
    await fleet.run(fleet.replica("manager-2"))
    assert value(collectors, "operators_deployed_total", strategy="Canary") == 1
    assert value(collectors, "operator_deploy_duration_seconds_count", strategy="Canary") == 1
    assert value(collectors, "operator_deploy_duration_seconds_sum", strategy="Canary") >= 120
    assert value(collectors, "operators_failed_total", strategy="Canary") == 0
    assert value(collectors, "operators_rollback_total", result="succeeded") == 0


async def test_a_version_that_fails_is_counted_as_a_rollback(
    fleet: RolloutHarness, collectors: CollectorRegistry
) -> None:
    fleet.clusters.unhealthy = {("dev-2", NEW)}
    await fleet.create(CANARY)
    await fleet.run()
    assert value(collectors, "operators_rollback_total", result="succeeded") == 1
    assert value(collectors, "operators_rollback_total", result="failed") == 0
    assert value(collectors, "operator_rollback_duration_seconds_count") == 1
    assert value(collectors, "operator_rollback_duration_seconds_sum") < 180
    assert value(collectors, "operators_deployed_total", strategy="Canary") == 0


async def test_a_deployment_without_a_plan_is_counted_as_failed(
    fleet: RolloutHarness, collectors: CollectorRegistry
) -> None:
    fleet.sources.unrenderable = "the chart has no templates"
    await fleet.create(DirectStrategy())
    await fleet.run()
    assert value(collectors, "operators_failed_total", strategy="Direct") == 1


async def test_the_gauges_count_what_is_registered_and_under_way(
    fleet: RolloutHarness, database: Database, collectors: CollectorRegistry
) -> None:
    gauges = FleetGauges(collectors)

    async def shown() -> tuple[float, ...]:
        async with database.transaction() as connection:
            gauges.show(await count_fleet(connection))
        names = ("operators_count", "clusters_count", "deployments_active")
        return tuple(value(collectors, name) for name in names)

    assert await shown() == (1, 2, 0)
    await fleet.create(CANARY)
    await fleet.settle()
    assert await shown() == (1, 2, 1)
    assert value(collectors, "deployments_in_phase", phase="Validating") == 1
    assert value(collectors, "clusters_in_condition", condition="Healthy") == 2
    await fleet.delete_cluster("dev-2")
    await fleet.run()
    assert await shown() == (1, 1, 0)


async def test_names_that_people_choose_are_in_no_label(
    fleet: RolloutHarness, collectors: CollectorRegistry
) -> None:
    gauges = FleetGauges(collectors)
    before = series(collectors)
    for name in ("dev-1", "dev-2"):
        await fleet.create(DirectStrategy(), targets=ClusterSelector((name,)))
    await fleet.run()
    gauges.show(FleetCounts(100_000, {"hostile\n{name}": 100_000}, {"Deploying": 100_000, "hostile": 1}))
    shown = generate_latest(collectors).decode()
    assert value(collectors, "operators_deployed_total", strategy="Direct") == 2
    assert [name for name in ("hostile", "dev-1", "cert-manager") if name in shown] == []
    assert series(collectors) == before, "the number of series does not grow with the fleet"


def series(collectors: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in collectors.collect())

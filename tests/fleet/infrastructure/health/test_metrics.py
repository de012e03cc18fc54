"""The metrics of health, as a scrape shows them."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry

from kapsa.fleet.domain.health import CheckKind
from kapsa.fleet.infrastructure.health.metrics import WHOLE_CHECK, HealthMetrics
from kapsa.fleet.infrastructure.health.observer import OperatorObserver
from kapsa.fleet.infrastructure.postgres.health.health_readings import PostgresHealthReadings
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.operator_health import OperatorHealths
from tests.eventually import eventually
from tests.fleet.infrastructure.health.operator_fixture import CLUSTER, RELEASE, OperatorFixture


async def test_checks_are_timed_and_operators_are_counted_by_their_health(operator: OperatorFixture) -> None:
    registry = CollectorRegistry()
    metrics = HealthMetrics(registry)
    observer = OperatorObserver(
        operator.connect, operator.database, operator.store, operator.audit, metrics=metrics
    )
    health = OperatorHealths(
        operator.database, PostgresOperators(), PostgresClusters(), PostgresHealthReadings()
    )

    async def shown() -> tuple[float | None, float | None]:
        await observer.observe(CLUSTER, RELEASE)
        metrics.show_operators(await health.count())
        return registry.get_sample_value("operators_healthy"), registry.get_sample_value(
            "operators_unhealthy"
        )

    await operator.install()
    await operator.ready()
    await operator.record_installation()
    assert await shown() == (1, 0)
    operator.cluster.workloads.crash("widget-operator-*")
    await eventually(shown, lambda counts: counts == (0, 1), "an unhealthy operator", seconds=120)
    operator.pass_time(timedelta(minutes=4).total_seconds())
    metrics.show_operators(await health.count())
    assert registry.get_sample_value("operators_unhealthy") == 0, "an old reading says nothing"
    for check in (CheckKind.PODS, CheckKind.RESOURCES, CheckKind.WEBHOOKS, WHOLE_CHECK):
        count = registry.get_sample_value("operator_healthcheck_duration_seconds_count", {"check": check})
        assert count is not None
        assert count >= 2

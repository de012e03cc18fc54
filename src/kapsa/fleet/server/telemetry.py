"""The metrics and traces of a manager, and the task that counts the fleet for them."""

import sys
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Counter

from kapsa.fleet.infrastructure.health.metrics import HealthMetrics
from kapsa.fleet.infrastructure.helm.metrics import HelmMetrics
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.fleet_counts import count_fleet
from kapsa.fleet.infrastructure.telemetry.fleet_gauges import FleetGauges
from kapsa.fleet.infrastructure.telemetry.registry_metrics import RegistryMetrics
from kapsa.fleet.infrastructure.telemetry.rollout_metrics import RolloutMetrics
from kapsa.fleet.infrastructure.telemetry.rollout_telemetry import RolloutTelemetry
from kapsa.fleet.orchestrator.operator_health import OperatorHealths

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.telemetry.rollout_traces import RolloutTraces

__all__ = ["TelemetryServices", "build_telemetry"]


class TelemetryServices(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one replica."""

    collectors: CollectorRegistry
    """All of them, as `/metrics` shows them."""
    registry: RegistryMetrics
    rollouts: RolloutTelemetry
    helm: HelmMetrics
    health: HealthMetrics
    fleet: FleetGauges
    task_failures: Counter

    def count_task_failure(self, task: str) -> None:
        """Count a round of a background task that failed. Its name is one of this program, or of its settings."""
        self.task_failures.labels(task).inc()

    async def refresh(self, database: Database, operators: OperatorHealths) -> None:
        """Count the fleet, and its operators by their health."""
        async with database.transaction() as connection:
            counts = await count_fleet(connection)
        self.fleet.show(counts)
        self.health.show_operators(await operators.count())


def build_telemetry() -> TelemetryServices:
    """Build the metrics, all at zero."""
    collectors = CollectorRegistry()
    return TelemetryServices(
        collectors=collectors,
        registry=RegistryMetrics(collectors),
        rollouts=RolloutTelemetry(RolloutMetrics(collectors), _tracing()),
        helm=HelmMetrics(collectors),
        health=HealthMetrics(collectors),
        fleet=FleetGauges(collectors),
        task_failures=Counter(
            "background_task_failures",
            "Rounds of background tasks that failed. They are tried again.",
            ("task",),
            registry=collectors,
        ),
    )


def _tracing() -> "RolloutTraces | None":
    """Return the tracing of rollouts; None, at no cost, if nothing in this process exports spans."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from kapsa.fleet.infrastructure.telemetry.rollout_traces import find_tracing

    return find_tracing()

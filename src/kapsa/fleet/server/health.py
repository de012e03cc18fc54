"""The health of operators: the observer that reads it from clusters, and the sweeps in the background."""

from datetime import timedelta

import msgspec

from kapsa.fleet.domain.health.memory import limits_for
from kapsa.fleet.infrastructure.health.metrics import HealthMetrics
from kapsa.fleet.infrastructure.health.observer import OperatorObserver
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.health.health_readings import PostgresHealthReadings
from kapsa.fleet.infrastructure.postgres.health.health_store import PostgresHealth
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.health_sweeps import HealthSweeps
from kapsa.fleet.orchestrator.operator_health import OperatorHealths
from kapsa.fleet.orchestrator.ports.audit import AuditTrail
from kapsa.fleet.server.registry import RegistryServices
from kapsa.fleet.settings import FleetSettings

__all__ = ["HealthServices", "build_health"]


class HealthServices(msgspec.Struct, frozen=True, kw_only=True):
    """The observer, which the rollout engine uses too, the sweeps, and what they show."""

    observer: OperatorObserver
    sweeps: HealthSweeps
    operators: OperatorHealths


def build_health(
    settings: FleetSettings,
    database: Database,
    audit: AuditTrail,
    registry: RegistryServices,
    metrics: HealthMetrics,
) -> HealthServices:
    """Build the health of operators on the clients of registered clusters."""
    store, limits = PostgresHealth(), limits_for(timedelta(seconds=settings.health_check_seconds))
    observer = OperatorObserver(
        registry.clients.client, database, store, audit, limits=limits, metrics=metrics
    )
    return HealthServices(
        observer=observer,
        sweeps=HealthSweeps(database, store, observer),
        operators=OperatorHealths(
            database, PostgresOperators(), PostgresClusters(), PostgresHealthReadings()
        ),
    )

"""Gauges of the fleet: how much is registered, and what is under way. All replicas show the same numbers."""

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from kapsa.fleet.domain.registry.clusters import ClusterCondition
from kapsa.fleet.domain.rollout.deployments import ACTIVE_PHASES
from kapsa.fleet.infrastructure.postgres.fleet_counts import FleetCounts

__all__ = ["FleetGauges"]


class FleetGauges:
    """The gauges of one replica, as they were counted last."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._operators = gauge("operators_count", "Registered operators.")
        self._clusters = gauge("clusters_count", "Registered clusters.")
        self._active = gauge(
            "deployments_active", "Deployments that have not ended, those that wait included."
        )
        conditions = gauge("clusters_in_condition", "Registered clusters by health.", ("condition",))
        phases = gauge("deployments_in_phase", "Deployments that have not ended, by phase.", ("phase",))
        self._conditions = {each: conditions.labels(each.value) for each in ClusterCondition}
        self._phases = {each: phases.labels(each.value) for each in ACTIVE_PHASES}

    def show(self, counts: FleetCounts) -> None:
        """Show new counts."""
        self._operators.set(counts.operators)
        self._clusters.set(sum(counts.clusters.values()))
        self._active.set(sum(counts.deployments.values()))
        for condition, series in self._conditions.items():
            series.set(counts.clusters.get(condition.value, 0))
        for phase, series in self._phases.items():
            series.set(counts.deployments.get(phase.value, 0))

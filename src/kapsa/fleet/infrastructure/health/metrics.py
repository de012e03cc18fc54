"""Metrics of health: how long checks take, and how many operators are healthy."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram

from kapsa.fleet.domain.health import CheckKind
from kapsa.fleet.orchestrator.operator_health import HealthWord

__all__ = ["WHOLE_CHECK", "HealthMetrics"]

WHOLE_CHECK = "All"
"""The label of a whole reading of an operator; those of its parts are the kinds of checks."""
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 25.0)
"""Every limit of the specification, and half of it, is a bound: whether it is kept is exact, not interpolated."""


class HealthMetrics:
    """The metrics of one replica. The gauges are the same on all replicas: they count what the database has."""

    def __init__(self, registry: CollectorRegistry) -> None:
        duration = Histogram(
            "operator_healthcheck_duration_seconds",
            "Seconds of a health check of an operator on a cluster.",
            ("check",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._duration = {check: duration.labels(check) for check in (*CheckKind, WHOLE_CHECK)}
        self._healthy = Gauge(
            "operators_healthy",
            "Operators that are healthy on every cluster that they are installed on.",
            registry=registry,
        )
        self._unhealthy = Gauge(
            "operators_unhealthy", "Operators that are unhealthy on a cluster.", registry=registry
        )

    def record_duration(self, check: str, seconds: float) -> None:
        """Record the time of a check that the cluster has answered."""
        self._duration[check].observe(seconds)

    def show_operators(self, counts: Mapping[HealthWord, int]) -> None:
        """Show how many operators are in which state."""
        self._healthy.set(counts.get(HealthWord.HEALTHY, 0))
        self._unhealthy.set(counts.get(HealthWord.UNHEALTHY, 0))

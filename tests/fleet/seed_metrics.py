"""The metrics that the specification of the fleet manager asks for, by their names in Prometheus."""

from __future__ import annotations

import re

COUNTERS = (
    "operators_deployed_total",
    "operators_rollback_total",
    "operators_failed_total",
    "clusters_registered_total",
    "crds_validated_total",
)
HISTOGRAMS = (
    "operator_deploy_duration_seconds",
    "operator_rollback_duration_seconds",
    "operator_healthcheck_duration_seconds",
    "helm_install_duration_seconds",
)
GAUGES = (
    "operators_count",
    "clusters_count",
    "deployments_active",
    "operators_healthy",
    "operators_unhealthy",
)


def sums(exposition: str) -> dict[str, float]:
    """Return the sum over the series of each sample name."""
    totals: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", exposition, flags=re.MULTILINE):
        totals[name] = totals.get(name, 0.0) + float(value)
    return totals


def seed_values(exposition: str) -> dict[str, float]:
    """Return the value of each of the metrics; of a histogram, the number of observations."""
    totals = sums(exposition)
    names = (*COUNTERS, *GAUGES, *(f"{name}_count" for name in HISTOGRAMS))
    return {name: totals[name] for name in names}

"""The limits of the fleet manager: those of its specification, and our own, which are half of them for latencies."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ONE, THREE = "one replica", "three replicas"

API = {
    "GET /operators": 100.0,
    "POST /deployments": 500.0,
    "GET /clusters/{name}/health": 2000.0,
}
"""Milliseconds that the specification allows for a request. It names no percentile: all but one in a hundred."""
CHECKS = {
    "pod check": (100.0, 300.0, 500.0),
    "webhook check": (200.0, 500.0, 1000.0),
    "CRD reconciliation check": (500.0, 1000.0, 2000.0),
    "full operator check": (1000.0, 2000.0, 3000.0),
}
"""Milliseconds of a health check that the specification allows, at p50, p95 and p99."""
_SOAKS_SECONDS = 3 * 300.0
"""The evaluation periods of a canary in the specification. The benchmark's canary soaks for a second."""
MEMORY = "peak memory of a replica without its Helm processes MB"
CLUSTER_CONNECTIONS = "connections of a replica to clusters"
DATABASE_CONNECTIONS = "connections to the database for each replica"
BUSIEST = "under load: % of a core, busiest replica"
REST = "at rest: % of a core, all replicas"
FAILED_REQUESTS = "failed requests"
FAILED_DEPLOYMENTS = "failed deployments"
"""Deployments and rollbacks that a manager refused, or that ended otherwise or not in time."""


class Limit(msgspec.Struct, frozen=True):
    """The highest allowed value of a quantity."""

    specified: float
    """As the specification of the manager has it."""
    ours: float

    @classmethod
    def half(cls, specified: float) -> Limit:
        """Return a limit of which ours is half."""
        return cls(specified, specified / 2)


def fleet_limits() -> Mapping[str, Limit]:
    """Return the limits by quantity."""
    requests = {f"{name} ms p99": Limit.half(allowed) for name, allowed in API.items()}
    checks = {
        f"{name} ms p{percent}": Limit.half(allowed)
        for name, bounds in CHECKS.items()
        for percent, allowed in zip((50, 95, 99), bounds, strict=True)
    }
    return {
        **requests,
        **checks,
        "deployment to one cluster s p99": Limit.half(180.0),
        "deployment to several clusters s p99": Limit.half(900.0),
        "canary in three stages s p99": Limit.half(1800.0 - _SOAKS_SECONDS),
        "rollback s p99": Limit.half(180.0),
        BUSIEST: Limit(80.0, 80.0),
        MEMORY: Limit(0.75 * 4096, 1024.0),
        CLUSTER_CONNECTIONS: Limit(100.0, 100.0),
        DATABASE_CONNECTIONS: Limit(50.0, 50.0),
        FAILED_REQUESTS: Limit(0.0, 0.0),
        FAILED_DEPLOYMENTS: Limit(0.0, 0.0),
    }

"""Metrics of rollouts: deployments that ended, and how long they took."""

from datetime import datetime
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import RolloutStrategy

__all__ = ["RolloutMetrics"]

_STRATEGIES = tuple(str(each.__struct_config__.tag) for each in get_args(RolloutStrategy))
_DEPLOY_SECONDS = (10.0, 30.0, 60.0, 180.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 86400.0)
_ROLLBACK_SECONDS = (5.0, 15.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1800.0)


class RolloutMetrics:
    """The metrics of the deployments that end on one replica: `RolloutReporter` for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        deployed = counter("operators_deployed", "Deployments that completed.", ("strategy",))
        failed = counter(
            "operators_failed", "Deployments that ended as Failed: a person has to act.", ("strategy",)
        )
        rollbacks = counter("operators_rollback", "Rollbacks that ended, by result.", ("result",))
        duration = Histogram(
            "operator_deploy_duration_seconds",
            "Seconds from the start of a deployment to its completion, soaks included.",
            ("strategy",),
            buckets=_DEPLOY_SECONDS,
            registry=registry,
        )
        self._rollback_duration = Histogram(
            "operator_rollback_duration_seconds",
            "Seconds of a rollback, over all its clusters.",
            buckets=_ROLLBACK_SECONDS,
            registry=registry,
        )
        # Each series exists from the start: the increase from nothing to one would not be seen.
        self._deployed = {name: deployed.labels(name) for name in _STRATEGIES}
        self._failed = {name: failed.labels(name) for name in _STRATEGIES}
        self._duration = {name: duration.labels(name) for name in _STRATEGIES}
        self._rollbacks = {
            DeploymentPhase.ROLLED_BACK: rollbacks.labels("succeeded"),
            DeploymentPhase.FAILED: rollbacks.labels("failed"),
        }

    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        """Count a deployment that has ended."""
        strategy = str(after.strategy.__struct_config__.tag)
        if before.phase is DeploymentPhase.ROLLING_BACK:
            self._rollbacks[after.phase].inc()
            self._rollback_duration.observe(_seconds(after.rollback_started_at, after.finished_at))
        if after.phase is DeploymentPhase.COMPLETED:
            self._deployed[strategy].inc()
            self._duration[strategy].observe(_seconds(after.started_at, after.finished_at))
        elif after.phase is DeploymentPhase.FAILED:
            self._failed[strategy].inc()


def _seconds(start: datetime | None, end: datetime | None) -> float:
    """Return the time between two moments; none if the clock of the database went back."""
    return max(0.0, (end - start).total_seconds()) if start is not None and end is not None else 0.0

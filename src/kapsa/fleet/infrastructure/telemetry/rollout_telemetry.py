"""The telemetry of rollouts: one reporter for metrics, spans and the log."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import structlog
from structlog.contextvars import bound_contextvars

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState
from kapsa.fleet.infrastructure.telemetry.rollout_metrics import RolloutMetrics
from kapsa.fleet.orchestrator.ports.telemetry import StepRecorder

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.telemetry.rollout_traces import RolloutTraces

__all__ = ["RolloutTelemetry"]

log = structlog.get_logger(__name__)

_STATES = {
    TargetState.HEALTHY: "operator deployed successfully",
    TargetState.FAILED: "operator failed on a cluster",
    TargetState.ROLLED_BACK: "operator rolled back on a cluster",
    TargetState.SKIPPED: "cluster skipped",
}
_WARN = frozenset({DeploymentPhase.FAILED, DeploymentPhase.ROLLING_BACK, DeploymentPhase.PAUSED})


class RolloutTelemetry:
    """The port `RolloutReporter` of one replica. Without tracing no span is made."""

    def __init__(self, metrics: RolloutMetrics, tracing: "RolloutTraces | None" = None) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        """Count a deployment that has ended, export its span, and log the new phase."""
        self._metrics.phase_changed(before, after)
        if self._tracing is not None:
            self._tracing.phase_changed(before, after)
        write = log.warning if after.phase in _WARN else log.info
        reason = {"reason": after.message} if after.message else {}
        write("deployment changed its phase", phase=after.phase.value, **reason, **_fields(after))

    def step_changed(
        self, deployment: VersionDeployment, before: RolloutTarget, after: RolloutTarget
    ) -> None:
        """Log the new state of a cluster."""
        if before.state is after.state:
            return
        write = log.warning if after.state is TargetState.FAILED else log.info
        reason = {"reason": after.reason, "details": after.message} if after.reason else {}
        event = _STATES.get(after.state, "cluster changed its state")
        write(event, state=after.state.value, **reason, **_fields(deployment, after))

    @contextmanager
    def planning(self, deployment: VersionDeployment) -> Iterator[None]:
        """Frame the making of a plan with its span, and with the fields of its log lines."""
        span = self._tracing.planning(deployment) if self._tracing is not None else nullcontext()
        with bound_contextvars(**_fields(deployment)), span:
            yield

    @contextmanager
    def step(self, deployment: VersionDeployment, target: RolloutTarget) -> Iterator[StepRecorder]:
        """Frame a step on a cluster with its span, and with the fields of its log lines."""
        with bound_contextvars(**_fields(deployment, target)):
            if self._tracing is None:
                yield lambda _: None
                return
            with self._tracing.step(deployment, target) as record:
                yield record


def _fields(deployment: VersionDeployment, target: RolloutTarget | None = None) -> dict[str, str]:
    """Return the fields of a log line about a deployment, in the words of the specification."""
    fields = {
        "traceId": deployment.trace_id,
        "operatorName": deployment.operator_name,
        "version": deployment.version,
        "deploymentId": str(deployment.id),
        "userId": deployment.requested_by,
    }
    return fields if target is None else {**fields, "cluster": target.cluster_name}

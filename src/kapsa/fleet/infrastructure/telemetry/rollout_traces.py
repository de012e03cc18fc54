"""Traces of rollouts: the spans of a deployment, whichever replicas work on it and however long it takes.

The span of a deployment is exported when it ends, by the replica that ends it. Until then its children need its id: it
is derived from the deployment, so that each replica has the same one and nothing has to be stored.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState, TargetStep
from kapsa.fleet.infrastructure.telemetry.spans import active_tracer, end_with_errors

__all__ = ["RolloutTraces", "find_tracing"]

_DEPLOY, _ROLLBACK = "operator.deploy", "operator.rollback"
_FORWARD = frozenset(
    {
        DeploymentPhase.PLANNING,
        DeploymentPhase.AWAITING_APPROVAL,
        DeploymentPhase.DEPLOYING,
        DeploymentPhase.VALIDATING,
        DeploymentPhase.PAUSED,
    }
)
_STEPS: Mapping[TargetStep, str] = {
    TargetStep.PREPARE: "cluster.connect",
    TargetStep.UPGRADE: "helm.install",
    TargetStep.INSTALL_NEXT: "helm.install",
    TargetStep.VALIDATE: "operator.healthcheck",
    TargetStep.VALIDATE_NEXT: "operator.healthcheck",
    TargetStep.WATCH: "operator.healthcheck",
    TargetStep.VALIDATE_REVERTED: "operator.healthcheck",
    TargetStep.STOP_LIVE: "controller.stop",
    TargetStep.STOP_NEXT: "controller.stop",
    TargetStep.START_NEXT: "controller.start",
    TargetStep.START_LIVE: "controller.start",
    TargetStep.SWITCH_WEBHOOKS: "webhooks.switch",
    TargetStep.RESTORE_WEBHOOKS: "webhooks.switch",
    TargetStep.PREPARE_ROLLBACK: "cluster.connect",
    TargetStep.REVERT: "helm.rollback",
    TargetStep.REMOVE: "helm.uninstall",
    TargetStep.RETIRE_LIVE: "helm.uninstall",
}
"""The spans of steps. Steps that only wait have none."""


def find_tracing() -> "RolloutTraces | None":
    """Return the tracing of this process; None if no SDK has been set up."""
    provider = trace.get_tracer_provider()
    return RolloutTraces(provider) if isinstance(provider, TracerProvider) else None


class RolloutTraces:
    """The spans of deployments."""

    def __init__(self, provider: TracerProvider) -> None:
        tracer = provider.get_tracer("kapsa.fleet")
        assert isinstance(tracer, Tracer)
        self._ids = _ChosenIds(tracer.id_generator)
        tracer.id_generator = self._ids
        self._tracer = tracer

    @contextmanager
    def planning(self, deployment: VersionDeployment) -> Iterator[None]:
        """Open the span of a plan, which validates the CRDs and everything else of it."""
        with self._span("operator.validate", self._context(deployment, _DEPLOY), _attributes(deployment)):
            yield

    @contextmanager
    def step(
        self, deployment: VersionDeployment, target: RolloutTarget
    ) -> Iterator[Callable[[RolloutTarget], None]]:
        """Open the span of a step, if it has one. Yield what records its outcome."""
        name = _STEPS.get(target.step)
        if name is None:
            yield lambda _: None
            return
        back = target.state is TargetState.ROLLING_BACK
        context = self._context(deployment, _ROLLBACK if back else _DEPLOY)
        attributes = {**_attributes(deployment), **_cluster_attributes(target)}
        with self._span(name, context, attributes) as span:
            yield lambda after: _record(span, target, after)

    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        """Export the span of a deployment, or of its rollback, when it ends."""
        if before.phase in _FORWARD and after.phase not in _FORWARD:
            end = after.finished_at or after.rollback_started_at
            self._export(_DEPLOY, after, _caller(after), after.created_at, end)
        elif before.phase is DeploymentPhase.ROLLING_BACK:
            parent = self._context(after, _DEPLOY)
            self._export(_ROLLBACK, after, parent, after.rollback_started_at, after.finished_at)

    @contextmanager
    def _span(self, name: str, context: Context, attributes: Mapping[str, str | int]) -> Iterator[trace.Span]:
        token, tracer = attach(context), active_tracer.set(self._tracer)
        try:
            with (
                self._tracer.start_as_current_span(
                    name, attributes=attributes, record_exception=False, set_status_on_exception=False
                ) as span,
                end_with_errors(span),
            ):
                yield span
        finally:
            active_tracer.reset(tracer)
            detach(token)

    def _context(self, deployment: VersionDeployment, name: str) -> Context:
        """Return a context whose span is that of the deployment or of its rollback, which is exported later."""
        caller, trace_id = _caller(deployment), _trace_id(deployment)
        decision = self._tracer.sampler.should_sample(caller, trace_id, _DEPLOY).decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        remote = SpanContext(trace_id, _span_id(deployment, name), is_remote=True, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(remote), Context())

    def _export(
        self,
        name: str,
        deployment: VersionDeployment,
        parent: Context,
        start: datetime | None,
        end: datetime | None,
    ) -> None:
        with self._ids.chosen(_trace_id(deployment), _span_id(deployment, name)):
            span = self._tracer.start_span(
                name, context=parent, attributes=_attributes(deployment), start_time=_nanoseconds(start)
            )
        span.set_attribute("deployment.phase", deployment.phase.value)
        if deployment.phase not in (DeploymentPhase.COMPLETED, DeploymentPhase.ROLLED_BACK):
            span.set_status(StatusCode.ERROR, deployment.phase.value)
        span.end(_nanoseconds(end))


class _ChosenIds(IdGenerator):
    """A generator of ids, except for the spans whose ids are derived."""

    def __init__(self, generator: IdGenerator) -> None:
        self._generator = generator
        self._chosen: ContextVar[tuple[int, int] | None] = ContextVar("chosen", default=None)

    @contextmanager
    def chosen(self, trace_id: int, span_id: int) -> Iterator[None]:
        """Generate these ids."""
        token = self._chosen.set((trace_id, span_id))
        try:
            yield
        finally:
            self._chosen.reset(token)

    def generate_trace_id(self) -> int:
        chosen = self._chosen.get()
        return chosen[0] if chosen else self._generator.generate_trace_id()

    def generate_span_id(self) -> int:
        chosen = self._chosen.get()
        return chosen[1] if chosen else self._generator.generate_span_id()


def _caller(deployment: VersionDeployment) -> Context:
    """Return the context of the client that requested a deployment; an empty one if it sent none."""
    return TraceContextTextMapPropagator().extract({"traceparent": deployment.trace_parent}, Context())


def _trace_id(deployment: VersionDeployment) -> int:
    return int(deployment.trace_id, 16)


def _span_id(deployment: VersionDeployment, name: str) -> int:
    began = deployment.rollback_started_at if name == _ROLLBACK else None
    text = f"{deployment.id} {deployment.attempt} {name} {began.isoformat() if began else ''}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) or 1


def _attributes(deployment: VersionDeployment) -> dict[str, str | int]:
    return {
        "operator.name": deployment.operator_name,
        "operator.version": deployment.version,
        "deployment.id": str(deployment.id),
        "deployment.attempt": deployment.attempt,
        "deployment.strategy": str(deployment.strategy.__struct_config__.tag),
    }


def _cluster_attributes(target: RolloutTarget) -> dict[str, str | int]:
    return {
        "cluster.name": target.cluster_name,
        "cluster.environment": target.environment.value,
        "deployment.stage": target.stage,
        "deployment.step": target.step.value,
    }


def _record(span: trace.Span, before: RolloutTarget, after: RolloutTarget) -> None:
    span.set_attribute("deployment.next_step", after.step.value)
    failed = after.state is TargetState.FAILED and before.state is not TargetState.FAILED
    if failed or after.stalled:
        span.set_status(StatusCode.ERROR, after.reason)


def _nanoseconds(moment: datetime | None) -> int:
    return int((moment or datetime.now(UTC)).timestamp() * 1e9)

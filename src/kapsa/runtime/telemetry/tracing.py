"""Tracing: a span for each run, and below it a span for each request of the run.

Spans go to the OpenTelemetry SDK if the process has set it up. `configure` sets it up for the process of an
operator, from the standard OTEL_ variables. In any other process OpenTelemetry is not even loaded.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.clock import Clock
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import Key

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["Tracing", "configure"]

_log = structlog.get_logger(__name__)

_TRIGGERS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_MAX_REASONS = 10


def configure(service: str, environment: Mapping[str, str] | None = None) -> bool:
    """Export spans by OTLP if the standard variables request it.

    Return whether they do and the SDK is installed.
    """
    environment = os.environ if environment is None else environment
    off = environment.get("OTEL_TRACES_EXPORTER") == "none" or environment.get("OTEL_SDK_DISABLED") == "true"
    if off or not any(environment.get(name) for name in _TRIGGERS):
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning("tracing is off: install kapsa[otel] to export spans", missing=error.name)
        return False
    name = environment.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


class Tracing:
    """The spans of an operator."""

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer = tracer
        self._clock = clock

    @classmethod
    def find(cls, clock: Clock) -> Tracing | None:
        """Return the tracing of this process; None, at no cost, if the SDK is not loaded."""
        if "opentelemetry.sdk.trace" not in sys.modules:
            return None
        from opentelemetry import trace

        return cls(trace.get_tracer("kapsa"), clock)

    @contextlib.contextmanager
    def run(
        self, controller: str, kind: GroupVersionKind, key: Key, reasons: Iterator[str]
    ) -> Iterator[Span]:
        """Open the span of one run. Requests made within it become its children."""
        attributes: dict[str, Any] = {
            "kapsa.controller": controller,
            "kapsa.reasons": list(itertools.islice(reasons, _MAX_REASONS)),
            "k8s.resource.kind": kind.kind,
            "k8s.resource.api_version": kind.api_version,
            "k8s.resource.name": key.name,
        }
        if key.namespace:
            attributes["k8s.namespace.name"] = key.namespace
        with self._tracer.start_as_current_span(
            f"reconcile {controller}", attributes=attributes, start_time=self._now(), end_on_exit=False
        ) as span:
            try:
                yield span
            finally:
                span.end(self._now())

    def ended(self, span: Span, result: str) -> None:
        """Record the result of a run in its span."""
        from opentelemetry.trace import StatusCode

        span.set_attribute("kapsa.result", result)
        if result in ("error", "timeout", "terminal"):
            span.set_status(StatusCode.ERROR, result)

    def request(self, call: Call, code: int, seconds: float) -> None:
        """Record the span of a request that a run made.

        An observer of the client, called after the response.
        """
        from opentelemetry.trace import SpanKind, StatusCode, get_current_span

        if not get_current_span().is_recording():
            return  # watches and leases: they belong to no run
        now = self._now()
        resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
        span = self._tracer.start_span(
            f"{call.verb} {resource or 'discovery'}",
            kind=SpanKind.CLIENT,
            start_time=now - int(seconds * 1e9),
            attributes={
                "k8s.verb": call.verb,
                "k8s.resource.group": call.group,
                "k8s.namespace.name": call.namespace,
                "k8s.resource.name": call.name,
                "http.response.status_code": code,
            },
        )
        if not 0 < code < 400:
            span.set_status(StatusCode.ERROR, f"HTTP {code}" if code else "no response")
        span.end(now)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1e9)

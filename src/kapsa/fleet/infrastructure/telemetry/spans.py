"""Spans below the span of a rollout's step, opened where the work is done, and the headers that carry them on.

In a process that exports no spans both do nothing, and OpenTelemetry is not even loaded.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["active_tracer", "child_span", "end_with_errors", "trace_headers"]

active_tracer: ContextVar["Tracer | None"] = ContextVar("active_tracer", default=None)
"""The tracer of the step under way."""


@contextmanager
def child_span(name: str) -> Iterator[None]:
    """Open a span below the present one."""
    tracer = active_tracer.get()
    if tracer is None:
        yield
        return
    with (
        tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span,
        end_with_errors(span),
    ):
        yield


@contextmanager
def end_with_errors(span: "Span") -> Iterator[None]:
    """Mark a span whose work raises. It gets the name of the error: messages may quote what a cluster sent."""
    from opentelemetry.trace import StatusCode

    try:
        yield
    except BaseException as error:
        span.set_status(StatusCode.ERROR, type(error).__name__)
        raise


def trace_headers() -> Mapping[str, str]:
    """Return the W3C trace context of the present span, as headers of a request."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers

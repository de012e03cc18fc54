"""Observation of requests: metrics, one line in the log for each change, and headers that every response has.

The log has the template of a path and never the path or a query: both are free text of the caller.
"""

import re
import time
import uuid

import structlog
from litestar.datastructures import Headers
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Histogram
from structlog.contextvars import bound_contextvars

from kapsa.fleet.api.access import AuditClass, access_of
from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.problems import status_of
from kapsa.fleet.api.trace_parent import checked_trace_parent

__all__ = ["ApiMetrics", "ObservationMiddleware", "add_security_headers"]

log = structlog.get_logger(__name__)

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_REQUEST_ID = b"x-request-id"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class ApiMetrics:
    """The metrics of requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        labels = ("method", "route", "status")
        self.requests = Counter("http_requests", "Requests to the API.", labels, registry=registry)
        self.duration = Histogram(
            "http_request_duration_seconds",
            "Seconds until a response was complete.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=registry,
        )


class ObservationMiddleware(ASGIMiddleware):
    """The outermost layer around a route."""

    def __init__(self, metrics: ApiMetrics) -> None:
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Pass a request on, and record its outcome."""
        started = time.monotonic()
        status = 500
        request_id = _request_id(scope)

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_REQUEST_ID, request_id.encode())]
            await send(message)

        with bound_contextvars(requestId=request_id, **_trace(scope)):
            try:
                await next_app(scope, receive, observe)
            except Exception as error:
                status = status_of(error)
                raise
            finally:
                self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = str(scope.get("method", "")), str(scope.get("path_template", ""))
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.duration.labels(method, route).observe(seconds)
        rules = access_of(scope["route_handler"].opt)
        if rules is not None and rules.audit is AuditClass.WRITE:
            caller = scope.get("user")
            subject = caller.principal.subject if isinstance(caller, Caller) else ""
            log.info("request", method=method, route=route, status=status, userId=subject)


def _request_id(scope: Scope) -> str:
    """Return the id that the caller gave a request, so that it is found in both logs; a new one without it."""
    given = Headers.from_scope(scope).get("x-request-id", "")
    return given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex


def _trace(scope: Scope) -> dict[str, str]:
    trace_parent = checked_trace_parent(Headers.from_scope(scope).get("traceparent", ""))
    return {"traceId": trace_parent.split("-")[1]} if trace_parent else {}


async def add_security_headers(message: Message, scope: Scope) -> None:
    """Add the headers that every response has, also one without a route."""
    if message["type"] != "http.response.start":
        return
    present = {name.lower() for name, _ in message["headers"]}
    missing = (each for each in (*_HEADERS, _CONTENT_POLICY) if each[0] not in present)
    message["headers"] = [*message["headers"], *missing]

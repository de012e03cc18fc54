"""The probes and the metrics over HTTP: `/healthz` for liveness, `/readyz` with the state of every watch."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import re
from collections.abc import Callable
from http import HTTPStatus

import msgspec
import structlog

from kapsa.runtime.telemetry.metrics import CONTENT_TYPE, Metrics

__all__ = ["Check", "HealthCheckResult", "HealthChecks", "PortTakenError", "ProbeServer"]


class HealthCheckResult(msgspec.Struct, frozen=True):
    """The result of a health check."""

    ok: bool
    text: str = "ok"
    degraded: bool = False
    """True if something is missing that the rest can do without.

    It is reported; the operator is still ready.
    """

    def line(self, name: str) -> str:
        """Return the line of the report: `[+]` passed, `[~]` degraded, `[-]` failed."""
        mark = "~" if self.ok and self.degraded else "+" if self.ok else "-"
        return f"[{mark}] {name}: {self.text}"


Check = Callable[[], HealthCheckResult]
_Page = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Takes the query, and returns status, content type and body."""

_log = structlog.get_logger(__name__)

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_LOOPBACK = "127.0.0.1"
_LOCAL_HOST = re.compile(
    rb"\r\nhost:[ \t]*(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?[ \t]*\r\n", re.IGNORECASE
)
"""The Host of a request to this machine. A page of a browser that reaches it by a name of its own has another."""
_MAX_HEAD = 16 * 1024
_TIMEOUT = 10.0
"""Seconds for a client to send its request and read the response."""
_MAX_CONNECTIONS = 128
"""Concurrent connections. Beyond it the oldest is closed: kubelets are quick, and sockets are limited."""


class PortTakenError(OSError):
    """The operator cannot listen on a port."""

    for_the_user = True
    """True: the command line shows the message without a traceback."""


class HealthChecks:
    """The liveness and readiness checks of an operator, by name."""

    def __init__(self) -> None:
        self.live: dict[str, Check] = {}
        self.ready: dict[str, Check] = {}

    def report(self, checks: dict[str, Check]) -> tuple[bool, str]:
        """Return whether all checks pass, and a report with a line for each."""
        results = {name: check() for name, check in checks.items()}
        ok = all(result.ok for result in results.values())
        lines = [result.line(name) for name, result in results.items()]
        return ok, "\n".join([*lines, "ok" if ok else "not ok", ""])


class ProbeServer:
    """The HTTP server of the probes and the metrics.

    It listens on one port if both are the same, else on two. None disables one. The debug page has a port of its own,
    on the loopback interface only.

    It serves a few fixed pages, one request per connection. A web framework would be half of what an operator
    loads at start, and a fifth of its memory.
    """

    def __init__(
        self,
        health: HealthChecks,
        metrics: Metrics,
        *,
        host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside the pod
        metrics_port: int | None = 8080,
        health_port: int | None = 8081,
        metrics_path: str = "/metrics",
        liveness_path: str = "/healthz",
        readiness_path: str = "/readyz",
        debug_port: int | None = None,
        debug_page: Callable[[str], bytes] | None = None,
    ) -> None:
        self._health = health
        self._debug_port = debug_port if debug_page is not None else None
        self._debug_page = debug_page
        self._routes: dict[str, list[tuple[str, _Page]]] = {
            "metrics": [(metrics_path, self._serve_metrics)],
            "health": [(liveness_path, self._serve_live), (readiness_path, self._serve_ready)],
            "debug": [("/debug", self._serve_debug)],
        }
        self._metrics = metrics
        self._host = host
        self._ports = {"metrics": metrics_port, "health": health_port}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], None] = {}
        """Oldest first."""
        self._stopped = False
        self.ports: dict[str, int] = {}
        """The actual ports, by purpose: metrics, health or debug."""

    async def start(self) -> None:
        """Listen on each port. Raises `PortTakenError` if a port is not free."""
        by_port: dict[int, list[str]] = {}
        for purpose, port in self._ports.items():
            if port is not None:
                # Port 0 means any free port, so each purpose gets its own.
                by_port.setdefault(port or -len(by_port) - 1, []).append(purpose)
        for port, served in by_port.items():
            real = await self._listen(max(port, 0), served)
            self.ports |= dict.fromkeys(served, real)
        if self._debug_port is not None:
            self.ports["debug"] = await self._listen(self._debug_port, ["debug"], local=True)

    async def _listen(self, port: int, served: list[str], *, local: bool = False) -> int:
        routes = dict(route for what in served for route in self._routes[what])

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._stopped:  # accepted just before the server stopped
                writer.transport.abort()
                return
            task = asyncio.create_task(_serve(routes, reader, writer, local=local))
            self._connections[task] = None
            task.add_done_callback(functools.partial(self._disconnected, writer))
            if len(self._connections) > _MAX_CONNECTIONS:
                # Removed at once, not when its task ends, so that each of many new connections closes a
                # different old one.
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                oldest.cancel()

        what = f"cannot serve {' and '.join(served)} on port {port}"
        if port > 65535:  # uvloop would listen on the port modulo 65536
            raise PortTakenError(errno.EINVAL, f"{what}: ports range from 0 to 65535")
        try:
            server = await asyncio.start_server(
                connected, _LOOPBACK if local else self._host, port, limit=_MAX_HEAD
            )
        except OSError as error:
            raise PortTakenError(error.errno, f"{what}: {error.strerror or error}") from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _disconnected(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Close the connection.

        Not done in the task, since one cancelled before its first step runs no code at all.
        """
        self._connections.pop(task, None)
        writer.transport.abort()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        self._stopped = True
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _serve_metrics(self, query: str) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, CONTENT_TYPE, self._metrics.render()

    def _serve_live(self, query: str) -> tuple[HTTPStatus, str, bytes]:
        return self._answer(self._health.live)

    def _serve_ready(self, query: str) -> tuple[HTTPStatus, str, bytes]:
        return self._answer(self._health.ready)

    def _serve_debug(self, query: str) -> tuple[HTTPStatus, str, bytes]:
        assert self._debug_page is not None
        return HTTPStatus.OK, _JSON, self._debug_page(query)

    def _answer(self, checks: dict[str, Check]) -> tuple[HTTPStatus, str, bytes]:
        ok, text = self._health.report(checks)
        return HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode()


async def _serve(
    routes: dict[str, _Page], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, local: bool
) -> None:
    """Serve one request and close the connection."""
    # The client has disconnected or takes too long.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_TIMEOUT):
            writer.write(await _reply(routes, reader, local=local))
            await writer.drain()
            writer.close()
            await writer.wait_closed()


async def _reply(routes: dict[str, _Page], reader: asyncio.StreamReader, *, local: bool) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TEXT, b"")
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return _response(HTTPStatus.BAD_REQUEST, _TEXT, b"expected HTTP/1.1\n")
    if local and not _LOCAL_HOST.search(head):
        return _response(HTTPStatus.FORBIDDEN, _TEXT, b"only for this machine: use 127.0.0.1 or localhost\n")
    path, _, query = target.partition("?")
    page = routes.get(path)
    if page is None:
        paths = f"not found; paths: {', '.join(routes)}\n".encode()
        return _response(HTTPStatus.NOT_FOUND, _TEXT, paths, head_only=method == "HEAD")
    if method not in ("GET", "HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"use GET\n", allow="GET, HEAD")
    try:
        status, kind, body = page(query)
    except Exception as error:
        _log.exception("probe failed", path=target)
        status, kind, body = (
            HTTPStatus.INTERNAL_SERVER_ERROR,
            _TEXT,
            f"{type(error).__name__}: {error}\n".encode(),
        )
    return _response(status, kind, body, head_only=method == "HEAD")


def _response(
    status: HTTPStatus, kind: str, body: bytes, *, allow: str = "", head_only: bool = False
) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Allow: {allow}"] if allow else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head_only else body)

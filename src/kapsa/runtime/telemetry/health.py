"""Probes and metrics over HTTP: `/healthz` says whether to restart us, `/readyz` how every watch is doing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
from collections.abc import Callable
from http import HTTPStatus

import msgspec
import structlog

from kapsa.runtime.telemetry.metrics import CONTENT_TYPE, Metrics

__all__ = ["Check", "CheckResult", "HealthChecks", "PortTakenError", "ProbeServer"]


class CheckResult(msgspec.Struct, frozen=True):
    """What a check found."""

    ok: bool
    text: str = "ok"
    degraded: bool = False
    """Something is missing that others can do without: said, but no reason to call the whole not ready."""

    def line(self, name: str) -> str:
        mark = "~" if self.ok and self.degraded else "+" if self.ok else "-"
        return f"[{mark}] {name}: {self.text}"


Check = Callable[[], CheckResult]
Answer = Callable[[], tuple[HTTPStatus, str, bytes]]
"""Status, content type and body."""

_log = structlog.get_logger(__name__)

_TEXT = "text/plain; charset=utf-8"
_MAX_HEAD = 16 * 1024
_PATIENCE = 10.0
"""Seconds that a caller has to ask, and then to take the answer."""
_MAX_CALLERS = 128
"""Callers at a time. The one who has taken longest goes first: kubelets are quick, and sockets are few."""


class PortTakenError(OSError):
    """A port cannot be listened on."""

    for_the_user = True
    """The command line shows the message, without a traceback."""


class HealthChecks:
    """What makes an operator live and ready, by name."""

    def __init__(self) -> None:
        self.live: dict[str, Check] = {}
        self.ready: dict[str, Check] = {}

    def report(self, checks: dict[str, Check]) -> tuple[bool, str]:
        """Whether all is well, and a line for each check."""
        findings = {name: check() for name, check in checks.items()}
        ok = all(finding.ok for finding in findings.values())
        lines = [finding.line(name) for name, finding in findings.items()]
        return ok, "\n".join([*lines, "ok" if ok else "not ok", ""])


class ProbeServer:
    """Serves the probes and the metrics: on one port if both are the same, else on two. None leaves one out.

    A few fixed answers, one for each connection: a web framework would be half of what an operator loads at its start,
    and a fifth of its memory.
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
    ) -> None:
        self._health = health
        self._routes: dict[str, list[tuple[str, Answer]]] = {
            "metrics": [(metrics_path, self._serve_metrics)],
            "health": [(liveness_path, self._serve_live), (readiness_path, self._serve_ready)],
        }
        self._metrics = metrics
        self._host = host
        self._ports = {"metrics": metrics_port, "health": health_port}
        self._servers: list[asyncio.Server] = []
        self._callers: dict[asyncio.Task[None], None] = {}
        """In the order in which they came."""
        self._stopped = False
        self.ports: dict[str, int] = {}
        """The ports really listened on, by what is served."""

    async def start(self) -> None:
        by_port: dict[int, list[str]] = {}
        for what, port in self._ports.items():
            if port is not None:
                # Port 0 means any free one: then each gets its own.
                by_port.setdefault(port or -len(by_port) - 1, []).append(what)
        for port, served in by_port.items():
            real = await self._listen(max(port, 0), served)
            self.ports |= dict.fromkeys(served, real)

    async def _listen(self, port: int, served: list[str]) -> int:
        routes = dict(route for what in served for route in self._routes[what])

        def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._stopped:  # it was on its way in
                writer.transport.abort()
                return
            task = asyncio.create_task(_serve(routes, reader, writer))
            self._callers[task] = None
            task.add_done_callback(functools.partial(self._goodbye, writer))
            if len(self._callers) > _MAX_CALLERS:
                # Out at once, not when it has ended: of many who come in one turn each sends another one away.
                longest = next(iter(self._callers))
                del self._callers[longest]
                longest.cancel()

        what = f"cannot serve {' and '.join(served)} on port {port}"
        if port > 65535:  # uvloop would take the rest of the division for it
            raise PortTakenError(errno.EINVAL, f"{what}: there is no such port")
        try:
            server = await asyncio.start_server(called, self._host, port, limit=_MAX_HEAD)
        except OSError as error:
            raise PortTakenError(error.errno, f"{what}: {error.strerror or error}") from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _goodbye(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Here, not in the task: one that is cancelled before its first turn does nothing at all."""
        self._callers.pop(task, None)
        writer.transport.abort()

    async def stop(self) -> None:
        self._stopped = True
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        callers = list(self._callers)
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    def _serve_metrics(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, CONTENT_TYPE, self._metrics.render()

    def _serve_live(self) -> tuple[HTTPStatus, str, bytes]:
        return self._answer(self._health.live)

    def _serve_ready(self) -> tuple[HTTPStatus, str, bytes]:
        return self._answer(self._health.ready)

    def _answer(self, checks: dict[str, Check]) -> tuple[HTTPStatus, str, bytes]:
        ok, text = self._health.report(checks)
        return HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode()


async def _serve(
    routes: dict[str, Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one request, and close the connection."""
    # The caller has gone, or takes too long.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_PATIENCE):
            writer.write(await _reply(routes, reader))
            await writer.drain()
            writer.close()
            await writer.wait_closed()


async def _reply(routes: dict[str, Answer], reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TEXT, b"")
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return _response(HTTPStatus.BAD_REQUEST, _TEXT, b"this is an HTTP/1.1 port\n")
    answer = routes.get(target.partition("?")[0])
    if answer is None:
        known = f"there is {', '.join(routes)}\n".encode()
        return _response(HTTPStatus.NOT_FOUND, _TEXT, known, head_only=method == "HEAD")
    if method not in ("GET", "HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"ask by GET\n", allow="GET, HEAD")
    try:
        status, kind, body = answer()
    except Exception as error:
        _log.exception("no answer to a probe", path=target)
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

"""The gate: a server on loopback that helm talks to in place of a cluster."""

import asyncio
import contextvars
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import structlog
from aiohttp import web

from kapsa.fleet.infrastructure.helm.certificate import gate_certificate
from kapsa.fleet.infrastructure.helm.gate_rules import GateRequest, GateRuling, RequestRefused, Restoration
from kapsa.fleet.infrastructure.helm.gate_session import GateSession
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.runtime import Response, Transport, TransportError

__all__ = ["GateAccess", "HelmGate"]

log = structlog.get_logger(__name__)

_ADDRESS = "127.0.0.1"
_LARGEST_BODY = 8 * 1024 * 1024
"""Above any object that an API server stores."""
_RETURNED = ("content-type", "retry-after", "warning", "etag", "cache-control", "audit-id")
_RETRIED = 503
"""The status after which helm tries again if the answer has a time. It gets it for discovery only."""


class GateAccess(msgspec.Struct, frozen=True):
    """The address, the certificate and the token with which one run reaches its cluster."""

    server: str
    authority: bytes
    token: str

    def __repr__(self) -> str:
        return f"GateAccess({self.server})"


class HelmGate:
    """The server. It listens from the first session on, and a request without the token of a run gets 401."""

    def __init__(self) -> None:
        self._sessions: dict[str, GateSession] = {}
        self._runner: web.ServerRunner | None = None
        self._authority = b""
        self._port = 0
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def open(
        self, transport: Transport, guard: LeaseGuard, *, restoration: Restoration | None = None
    ) -> AsyncIterator[tuple[GateSession, GateAccess]]:
        """Let one run through to a cluster, until the block ends or the lease lapses.

        A rollback has a restoration.
        """
        await self._listen()
        session = GateSession(transport, guard, restoration=restoration)
        self._sessions[session.token] = session
        try:
            yield session, GateAccess(f"https://{_ADDRESS}:{self._port}", self._authority, session.token)
        finally:
            del self._sessions[session.token]
            await session.close()

    async def close(self) -> None:
        """Stop listening, and end all sessions."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            await runner.cleanup()

    async def _listen(self) -> None:
        async with self._starting:
            if self._runner is not None:
                return
            context, self._authority = await asyncio.to_thread(gate_certificate, _ADDRESS)
            # A server hands the variables of the task that starts it to each request: those of the first run.
            serving = asyncio.create_task(_serve(self._handle, context), context=contextvars.Context())
            self._runner = await serving
            self._port = self._runner.addresses[0][1]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        session = self._session_of(request)
        if session is None:
            return _refusal(RequestRefused(401, "Unauthorized", "the token is not that of a run under way"))
        async with session.request_under_way():
            received = GateRequest(request.method, request.raw_path, request.headers, await request.read())
            try:
                ruling, allowed = session.judge(received)
                if ruling is GateRuling.WATCH:
                    return await _follow(session, allowed, request)
                return _reply(await session.forward(ruling, allowed))
            except RequestRefused as error:
                return _refusal(error)
            except Exception as error:
                # Helm must not take a defect of the gate for one of the version: this ends like a lost answer.
                log.exception("the gate failed on a request", method=request.method)
                return _refusal(session.break_off(f"the gate failed: {type(error).__name__}"))

    def _session_of(self, request: web.BaseRequest) -> GateSession | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not token.isascii():
            return None
        matching = [each for each in self._sessions.values() if hmac.compare_digest(each.token, token)]
        return matching[0] if matching else None


async def _serve(handler: Any, context: ssl.SSLContext) -> web.ServerRunner:
    loop = asyncio.get_running_loop()

    def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)

    server = web.Server(handler, request_factory=make_request, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, _ADDRESS, 0, ssl_context=context).start()
    return runner


async def _follow(
    session: GateSession, request: GateRequest, received: web.BaseRequest
) -> web.StreamResponse:
    """Pass a watch on until either side ends it. Helm opens it again if it still needs it."""
    response: web.StreamResponse | None = None
    try:
        async with session.stream(request) as stream:
            response = web.StreamResponse(status=stream.status, headers=_returned(stream.headers))
            await response.prepare(received)
            async for chunk in stream:
                await response.write(chunk)
    except (TransportError, ConnectionError) as error:
        if response is None:
            raise RequestRefused(503, "ServiceUnavailable", f"the watch failed: {error}") from None
    return response


def _reply(response: Response) -> web.Response:
    headers = _returned(response.headers)
    if response.status == _RETRIED:
        headers.setdefault("retry-after", "1")
    return web.Response(status=response.status, headers=headers, body=response.body)


def _returned(headers: Any) -> dict[str, str]:
    return {name: headers[name] for name in _RETURNED if name in headers}


def _refusal(error: RequestRefused) -> web.Response:
    """Return a Status object, as an API server answers."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.status,
    }
    return web.Response(status=error.status, body=msgspec.json.encode(body), content_type="application/json")

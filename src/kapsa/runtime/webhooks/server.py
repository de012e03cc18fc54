"""The webhook server: answers the API server's calls, and keeps certificate and registration up to date meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ClientError
from kapsa.runtime.webhooks._certificate_sources import (
    CertificateSource,
    DirectoryCertificates,
    SecretCertificates,
)
from kapsa.runtime.webhooks._registration import Endpoint, Registrar
from kapsa.runtime.webhooks._review_handler import Observe, ReviewHandler
from kapsa.runtime.webhooks.certificates import CertificatePair
from kapsa.runtime.webhooks.webhooks import Webhooks, secret_name

__all__ = ["Route", "WebhookServer"]

_log = structlog.get_logger(__name__)
_LINGERING = 0.5
"""Seconds in which one who was answered early may still send: to hang up at once could cost it the answer."""

Route = Callable[[str, Callable[[str, bytes], Awaitable[tuple[int, bytes]]]], None]
"""Has calls answered within this process: takes where they go to, and what answers a path and a body."""


class WebhookServer:
    """Serves the webhooks of one operator."""

    def __init__(
        self,
        webhooks: Webhooks,
        client: Client,
        *,
        operator: str,
        observe: Observe | None = None,
        route: Route | None = None,
    ) -> None:
        """`client` writes registrations and the Secret; `operator` names both; with a `route` no port is opened."""
        self._webhooks = webhooks
        self._client = client
        self._route = route
        self._answers = ReviewHandler(
            webhooks.webhooks,
            webhooks.conversions,
            client,
            max_body_bytes=webhooks.max_body_bytes,
            observe=observe,
        )
        self._certificates: CertificateSource
        if webhooks.cert_dir is not None:
            self._certificates = DirectoryCertificates(webhooks.cert_dir)
        else:
            self._certificates = SecretCertificates(
                client,
                namespace=client.namespace,
                name=secret_name(operator),
                hosts=webhooks.hosts(client.namespace),
                lifetimes=webhooks.lifetimes,
            )
        self._registrar = Registrar(
            client,
            name=operator,
            endpoint=Endpoint(
                service=webhooks.service,
                namespace=client.namespace,
                port=webhooks.service_port,
                url=webhooks.url,
            ),
            webhooks=webhooks.webhooks,
            crds=webhooks.conversions.crds,
        )
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._serving: CertificatePair | None = None
        self._runner: web.AppRunner | None = None
        self._port: asyncio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        """Set once it listens with a certificate and is registered."""
        self.trouble = ""
        """Why it is not ready, or what last went wrong; empty if nothing."""

    @property
    def port(self) -> int:
        """The port it listens on; 0 while it does not."""
        return int(self._port.sockets[0].getsockname()[1]) if self._port and self._port.sockets else 0

    async def start(self) -> None:
        """Start in the background. `ready` tells when it serves."""
        self._keeper = asyncio.create_task(self.run(), name="webhook server")

    async def run(self) -> None:
        """Serve until cancelled; looks after certificates and registrations all the while."""
        while True:
            try:
                await self.keep()
                self.trouble = ""
            except (ClientError, OSError, ssl.SSLError) as error:
                # A standby may not write; it serves as soon as the leader has made the Secret.
                self.trouble = str(error)
                _log.warning("webhooks not up to date", error=str(error))
            pause = (
                self._webhooks.check_every if self.ready.is_set() else min(2.0, self._webhooks.check_every)
            )
            await self._client.clock.sleep(pause)

    async def keep(self) -> None:
        """Once: take the current certificate into use, listen, and bring the registrations up to date."""
        pair, bundle = await self._certificates.current()
        if pair != self._serving:
            present(self._tls, pair.certificate, pair.key)  # new handshakes use it at once
            self._serving = pair
        if self._route is not None:
            self._route(self._webhooks.address(self._client.namespace), self._answer_within)
        elif self._runner is None:
            await self._listen()
        await self._registrar.register(bundle)
        self.ready.set()

    async def stop(self) -> None:
        """Stop listening; calls in flight are answered first."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        self.ready.clear()
        if self._port is not None:
            self._port.close()
            self._port = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer_within(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._keeper is None:
            raise ConnectionRefusedError("the operator does not run")
        return await self._answers(path, body)

    async def _listen(self) -> None:
        declared = self._webhooks
        application = web.Application()
        application.router.add_post("/{path:.*}", self._answer_http)
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=5.0,
            keepalive_timeout=declared.idle_timeout,
            lingering_time=_LINGERING,
        )
        await runner.setup()
        assert runner.server is not None
        try:
            self._port = await asyncio.get_running_loop().create_server(
                functools.partial(self._connect, runner.server),
                declared.host,
                declared.port,
                ssl=self._tls,
                reuse_address=True,
            )
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        _log.info("webhooks served", port=self.port)

    def _connect(self, server: web.Server) -> asyncio.Protocol:
        """What speaks to one who has just connected. Makes room: anybody may connect, and files and memory are few."""
        connections = server.connections
        excess = len(connections) + 1 - self._webhooks.max_connections
        for oldest in connections[: max(excess, 0)]:
            if oldest.transport is not None:
                oldest.transport.abort()
        return server()

    async def _answer_http(self, request: web.Request) -> web.Response:
        body = bytearray()
        try:
            async with asyncio.timeout(self._webhooks.body_timeout):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > self._webhooks.max_body_bytes:
                        break  # it will be refused, so the rest need not be read
        except TimeoutError:
            code, reply = self._answers.late(request.path, self._webhooks.body_timeout)
        else:
            code, reply = await self._answers(request.path, bytes(body))
        kind = "application/json" if code == 200 else "text/plain"
        return web.Response(status=code, body=reply, content_type=kind)

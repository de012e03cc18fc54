"""The webhook server. It serves reviews and keeps its certificate and its registration up to date."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl

import structlog
from aiohttp import web

from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ClientError, WriteRefused
from kapsa.runtime.webhooks._certificate_sources import (
    CertificateSource,
    DirectoryCertificates,
    ProcessCertificates,
    SecretCertificates,
)
from kapsa.runtime.webhooks._registration import Endpoint, Registrar
from kapsa.runtime.webhooks._review_handler import Observe, ReviewHandler
from kapsa.runtime.webhooks.certificates import CertificatePair
from kapsa.runtime.webhooks.webhooks import WebhookRoute, Webhooks, secret_name

__all__ = ["WebhookServer"]

_log = structlog.get_logger(__name__)
_LINGERING = 0.5
"""Seconds for which a client that was answered early may go on sending.

Closing at once could lose the response.
"""
_WITHDRAWAL = 10.0
"""Seconds to put back replaced registrations at the end."""


class WebhookServer:
    """The HTTPS server of one operator's webhooks."""

    def __init__(
        self,
        webhooks: Webhooks,
        client: Client,
        *,
        operator: str,
        observe: Observe | None = None,
        route: WebhookRoute | None = None,
    ) -> None:
        """Prepare a server.

        `client` writes the registrations and the Secret, which are named after `operator`. With a `route`, calls are delivered within the process and no port is opened.
        """
        self._webhooks = webhooks
        self._client = client
        self._namespace = webhooks.namespace or client.namespace
        self._route = route
        self._handler = ReviewHandler(
            webhooks.webhooks,
            webhooks.conversions,
            client,
            max_body_bytes=webhooks.max_body_bytes,
            observe=observe,
        )
        self._certificates = _certificate_source(webhooks, client, operator, self._namespace)
        self._registrar = Registrar(
            client,
            name=operator,
            endpoint=Endpoint(
                service=webhooks.service,
                namespace=self._namespace,
                port=webhooks.service_port,
                url=webhooks.url,
            ),
            webhooks=webhooks.webhooks,
            crds=webhooks.conversions.crds,
            former=webhooks.former,
            temporary=webhooks.temporary,
        )
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._serving: CertificatePair | None = None
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        """Set once the server listens with a certificate and is registered."""
        self.trouble = ""
        """The last error; empty if the last check succeeded."""

    @property
    def port(self) -> int:
        """The port the server listens on; 0 while it does not listen."""
        return (
            int(self._listener.sockets[0].getsockname()[1])
            if self._listener and self._listener.sockets
            else 0
        )

    async def start(self) -> None:
        """Start in the background. `ready` is set once the webhooks are served."""
        self._keeper = asyncio.create_task(self.run(), name="webhook server")

    async def run(self) -> None:
        """Serve until cancelled, checking certificates and registrations at intervals."""
        while True:
            try:
                await self.keep()
                self.trouble = ""
            except WriteRefused:
                # A standby may not write. It serves as soon as the leader has created the Secret.
                self.trouble = "waits until this or another replica leads and registers the webhooks"
                _log.debug("webhooks wait for a leader")
            except (ClientError, OSError, ssl.SSLError) as error:
                self.trouble = str(error)
                _log.warning("webhooks not up to date", error=str(error))
            pause = (
                self._webhooks.check_every if self.ready.is_set() else min(2.0, self._webhooks.check_every)
            )
            await self._client.clock.sleep(pause)

    async def keep(self) -> None:
        """Load the current certificate, listen if not listening yet, and update the registrations."""
        if not self._webhooks.served:  # the last webhook was dropped: only its registration is left
            await self._registrar.register(b"")
            self.ready.set()
            return
        pair, bundle = await self._certificates.current()
        if pair != self._serving:
            present(self._tls, pair.certificate, pair.key)  # new handshakes use it at once
            self._serving = pair
        if self._route is not None:
            self._route(self._webhooks.address(self._namespace), self._serve_in_process)
        elif self._runner is None:
            await self._listen()
        await self._registrar.register(
            bundle if self._webhooks.authority is None else self._webhooks.authority
        )
        self.ready.set()

    async def withdraw(self) -> None:
        """Put back the registrations that this process replaced for its own time."""
        await self._stop_keeper()
        try:
            async with asyncio.timeout(_WITHDRAWAL):
                await self._registrar.withdraw()
        except (ClientError, OSError, TimeoutError) as error:
            _log.error(
                "webhook registrations not put back: the API server goes on calling this process. Start it again and "
                "stop it, or delete the registrations",
                error=str(error) or "no answer in time",
            )

    async def stop(self) -> None:
        """Stop listening. Calls in flight are answered first."""
        await self._stop_keeper()
        self.ready.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _stop_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def _serve_in_process(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._keeper is None:
            raise ConnectionRefusedError("the operator is not running")
        return await self._handler(path, body)

    async def _listen(self) -> None:
        declared = self._webhooks
        application = web.Application()
        application.router.add_post("/{path:.*}", self._serve_http)
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
            self._listener = await asyncio.get_running_loop().create_server(
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
        """Return the protocol for a new connection, closing the oldest ones if the limit is reached.

        Anything in the cluster may connect, and file descriptors and memory are limited.
        """
        connections = server.connections
        excess = len(connections) + 1 - self._webhooks.max_connections
        for oldest in connections[: max(excess, 0)]:
            if oldest.transport is not None:
                oldest.transport.abort()
        return server()

    async def _serve_http(self, request: web.Request) -> web.Response:
        body = bytearray()
        try:
            async with asyncio.timeout(self._webhooks.body_timeout):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > self._webhooks.max_body_bytes:
                        break  # too large: the handler rejects it, so the rest need not be read
        except TimeoutError:
            code, reply = self._handler.late(request.path, self._webhooks.body_timeout)
        else:
            code, reply = await self._handler(request.path, bytes(body))
        kind = "application/json" if code == 200 else "text/plain"
        return web.Response(status=code, body=reply, content_type=kind)


def _certificate_source(
    webhooks: Webhooks, client: Client, operator: str, namespace: str
) -> CertificateSource:
    if webhooks.cert_dir is not None:
        return DirectoryCertificates(webhooks.cert_dir)
    hosts = webhooks.hosts(namespace)
    if webhooks.temporary:
        return ProcessCertificates(client.clock, hosts=hosts, lifetimes=webhooks.lifetimes)
    return SecretCertificates(
        client,
        namespace=namespace,
        name=secret_name(operator),
        hosts=hosts,
        lifetimes=webhooks.lifetimes,
    )

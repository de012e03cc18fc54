"""Servers and proxies on loopback, for tests of the HTTP client."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from kapsa.runtime.client.auth.access import StaticAccess
from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.webhooks.certificates import CertificatePair, issue_certificate

DAY = timedelta(days=1)
ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def raw_server(handler: ConnectionHandler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server whose handler reads and writes the bytes of each connection."""
    connections: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((asyncio.create_task(handle(reader, writer)), writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in connections:
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(
            *(task for task, _ in connections),
            *(writer.wait_closed() for _, writer in connections),
            return_exceptions=True,
        )


@contextlib.asynccontextmanager
async def http_server(handler: RequestHandler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server whose handler gets all requests."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class FakeApiServer:
    """A server that accepts one bearer token, and records the tokens of all requests."""

    def __init__(self, token: str = "good") -> None:
        self.token = token
        self.seen: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        self.seen.append(authorization.removeprefix("Bearer "))
        if authorization != f"Bearer {self.token}":
            return web.json_response({"status": "Failure", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.json_response({"gitVersion": "v1.36.3"})


async def read_request(reader: asyncio.StreamReader) -> str:
    """Return one request without a body."""
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def respond_with(*parts: bytes) -> ConnectionHandler:
    """Return a handler that responds to each request with these bytes, one part after the other."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)  # so that the parts arrive one by one

    return respond


@contextlib.asynccontextmanager
async def transport_to(handler: ConnectionHandler, **options: int | float) -> AsyncIterator[HttpTransport]:
    async with raw_server(handler) as server:
        transport = HttpTransport(StaticAccess(server), **options)  # type: ignore[arg-type]
        try:
            yield transport
        finally:
            await transport.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def server_tls(pair: CertificatePair, *, clients: bytes | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    present(context, pair.certificate, pair.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.decode())
    return context


def pair_for(authority: CertificatePair, *names: str, client: bool = False) -> CertificatePair:
    usage = "client" if client else "server"
    return issue_certificate(authority, names, now=datetime.now(UTC), lifetime=DAY, usage=usage)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def tunnel_proxy(seen: list[str], *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A proxy that tunnels, as proxies do for TLS, and records the addresses."""
    pumps: list[asyncio.Task[None]] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await source.read(65536):
                sink.write(chunk)
        sink.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        except (ConnectionError, asyncio.IncompleteReadError):  # the client has gone
            writer.close()
            return
        seen.append(target)
        port = int(target.rpartition(":")[2])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        pumps.append(asyncio.create_task(pump(reader, far_writer)))
        pumps.append(asyncio.create_task(pump(far_reader, writer)))

    server = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*pumps, return_exceptions=True)

"""Servers and proxies on loopback for the tests of the HTTP client: what they say is up to each test."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

from kapsa.runtime.client.auth.access import StaticAccess
from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.webhooks.certificates import CertificatePair, issue_certificate

DAY = timedelta(days=1)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def talking(talk: Talk, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that says on each connection what the test wants it to say."""
    conversations: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.append((asyncio.create_task(converse(reader, writer)), writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in conversations:
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(
            *(task for task, _ in conversations),
            *(writer.wait_closed() for _, writer in conversations),
            return_exceptions=True,
        )


async def heard(reader: asyncio.StreamReader) -> str:
    """One request without a body."""
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def saying(*parts: bytes) -> Talk:
    """Answers every request by these bytes, one part after the other."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await heard(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)  # so that the parts arrive one by one

    return talk


@contextlib.asynccontextmanager
async def client_of(talk: Talk, **options: int | float) -> AsyncIterator[HttpTransport]:
    async with talking(talk) as server:
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
async def tunnelling(seen: list[str], *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A proxy that tunnels, as proxies do for TLS: it sees where, not what."""
    pumps: list[asyncio.Task[None]] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await source.read(65536):
                sink.write(chunk)
        sink.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        except (ConnectionError, asyncio.IncompleteReadError):  # who called has gone
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

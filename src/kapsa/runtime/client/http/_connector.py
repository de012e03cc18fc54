"""The connector that opens connections to one server: name resolution, TLS and proxies."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable

import aiohappyeyeballs

from kapsa.runtime.client.auth.access import AddressGuard
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.client.http._connection import HttpConnection
from kapsa.runtime.client.http.url import HttpUrl

__all__ = ["Connector", "ProxyError"]

_NEXT_ADDRESS_AFTER = 0.25
"""Seconds after which the next address of the same name is tried in parallel."""
_ADDRESSES_VALID = 30.0
_MAX_PROXY_RESPONSE = 64 * 1024

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple]  # type: ignore[type-arg]


class ProxyError(ConnectionError):
    """The proxy rejected the connection."""


class Connector:
    """A connector that opens connections to one server."""

    def __init__(
        self,
        server: HttpUrl,
        *,
        server_name: str | None = None,
        proxy: HttpUrl | None = None,
        proxy_authority: Callable[[], bytes | None] = lambda: None,
        guard: AddressGuard | None = None,
    ) -> None:
        self._server = server
        # Certificates do not contain the trailing dot of a name.
        self._server_name = server_name or server.host.removesuffix(".")
        self._proxy = proxy
        self._proxy_authority = proxy_authority
        self._proxy_trust: tuple[bytes | None, ssl.SSLContext] | None = None
        self._guard = guard
        self._system_trust: ssl.SSLContext | None = None
        self._addresses: tuple[float, list[AddressInfo]] | None = None
        self._resolving = asyncio.Lock()

    async def connect(self, tls: ssl.SSLContext | bool) -> HttpConnection:
        """Open a connection."""
        loop = asyncio.get_running_loop()
        connection = HttpConnection(loop)
        context = self._context(tls)
        stream = await self._open(loop)
        if self._proxy is None:
            await _attach(loop, connection, stream, context, self._server_name)
        elif context is None:
            await _attach(loop, connection, stream, self._proxy_context(), self._proxy.host)
        else:  # the proxy sees the address of the server, but not the traffic
            tunnel = _Tunnel(loop)
            await _attach(loop, tunnel, stream, self._proxy_context(), self._proxy.host)
            tunnelled = await tunnel.to(self._server, proxy_headers(self._proxy))
            await _secure(loop, tunnelled, connection, context, self._server_name)
        return connection

    def _context(self, tls: ssl.SSLContext | bool) -> ssl.SSLContext | None:
        if not self._server.secure:
            return None
        return tls if isinstance(tls, ssl.SSLContext) else self._system_context()

    def _proxy_context(self) -> ssl.SSLContext | None:
        """Return the trust in an https proxy: the system's, and the CA declared for it, which may rotate."""
        if self._proxy is None or not self._proxy.secure:
            return None
        authority = self._proxy_authority()
        if self._proxy_trust is None or self._proxy_trust[0] != authority:
            self._proxy_trust = authority, client_context(also=authority)
        return self._proxy_trust[1]

    def _system_context(self) -> ssl.SSLContext:
        if self._system_trust is None:
            self._system_trust = client_context()
        return self._system_trust

    async def _open(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Open a TCP connection to the server, or to its proxy."""
        addresses = await self._resolve(loop)
        try:
            return await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER, loop=loop
            )
        except BaseException:
            self._addresses = None  # the name may resolve to others by now
            raise

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> list[AddressInfo]:
        """Return the addresses, resolving the name once for all connections that are being opened."""
        peer = self._proxy or self._server
        async with self._resolving:
            if self._addresses is None or self._addresses[0] < loop.time():
                addresses = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
                for *_, address in addresses:
                    if self._guard is not None:
                        self._guard(str(address[0]))
                self._addresses = (loop.time() + _ADDRESSES_VALID, list(addresses))
            return self._addresses[1]


def proxy_headers(proxy: HttpUrl) -> dict[str, str]:
    """Return the headers that authenticate at a proxy whose URL has a login."""
    if not proxy.login:
        return {}
    return {"Proxy-Authorization": f"Basic {base64.b64encode(proxy.login.encode()).decode()}"}


async def _attach(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.Protocol,
    stream: socket.socket,
    context: ssl.SSLContext | None,
    name: str,
) -> None:
    first = protocol if context is None else asyncio.Protocol()
    try:
        transport, _ = await loop.create_connection(lambda: first, sock=stream)
    except BaseException:
        stream.close()
        raise
    if context is not None:
        await _secure(loop, transport, protocol, context, name)


async def _secure(
    loop: asyncio.AbstractEventLoop,
    transport: asyncio.WriteTransport,
    protocol: asyncio.Protocol,
    context: ssl.SSLContext,
    name: str,
) -> None:
    """Start TLS on a connection.

    `create_connection` could do this, but asyncio's leaks the socket if it is cancelled before the handshake
    starts.
    """
    try:
        secured = await loop.start_tls(transport, protocol, context, server_hostname=name)
        assert secured is not None
        protocol.connection_made(secured)
    except BaseException:
        transport.abort()
        raise


class _Tunnel(asyncio.Protocol):
    """A request to a proxy for a tunnel to a server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._opened: asyncio.Future[None] = loop.create_future()
        self._opened.add_done_callback(_retrieve)
        self._response = b""
        self._transport: asyncio.Transport | None = None

    async def to(self, server: HttpUrl, headers: dict[str, str]) -> asyncio.Transport:
        """Return the transport to the server, after the proxy has opened the tunnel."""
        assert self._transport is not None
        lines = [f"CONNECT {server} HTTP/1.1", f"Host: {server}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            if not self._opened.done():
                self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            await self._opened
        except BaseException:
            self._transport.abort()
            raise
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is not asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self._response += data
        head, end, rest = self._response.partition(b"\r\n\r\n")
        if self._opened.done() or (not end and len(self._response) < _MAX_PROXY_RESPONSE):
            return
        line = head.split(b"\r\n", 1)[0][:200].decode("latin-1")
        version, _, status = line.partition(" ")
        if not end or not version.startswith("HTTP/1.") or (rest and status.startswith("2")):
            self._opened.set_exception(ProxyError(f"the proxy sent an invalid response: {line!r}"))
        elif status.startswith("2"):
            self._opened.set_result(None)
        else:
            self._opened.set_exception(ProxyError(f"the proxy rejected the connection: {status}"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(error or ProxyError("the proxy closed the connection"))


def _retrieve(opened: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: the task that waited for it may have been cancelled."""
    if not opened.cancelled():
        opened.exception()

"""Opening connections to one server: finding its addresses, TLS, and the way through a proxy."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl

import aiohappyeyeballs

from kapsa.runtime.client.auth.access import AddressGuard
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.client.http._connection import HttpConnection
from kapsa.runtime.client.http.url import HttpUrl

__all__ = ["Connector", "ProxyError"]

_NEXT_ADDRESS_AFTER = 0.25
"""Seconds that an address has before the next one of the same name is tried beside it."""
_ADDRESSES_LAST = 30.0
_MAX_PROXY_ANSWER = 64 * 1024

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple]  # type: ignore[type-arg]


class ProxyError(ConnectionError):
    """The proxy would not let us through."""


class Connector:
    """Makes connections to one server."""

    def __init__(
        self,
        server: HttpUrl,
        *,
        server_name: str | None = None,
        proxy: HttpUrl | None = None,
        guard: AddressGuard | None = None,
    ) -> None:
        self._server = server
        self._server_name = server_name or server.host.removesuffix(".")  # no certificate has the last dot
        self._proxy = proxy
        self._guard = guard
        self._system_trust: ssl.SSLContext | None = None
        self._addresses: tuple[float, list[AddressInfo]] | None = None
        self._resolving = asyncio.Lock()

    async def connect(self, tls: ssl.SSLContext | bool) -> HttpConnection:
        """A new connection, ready for its first request."""
        loop = asyncio.get_running_loop()
        connection = HttpConnection(loop)
        context = self._context(tls)
        opened = await self._open(loop)
        if self._proxy is None:
            await _attach(loop, connection, opened, context, self._server_name)
        elif context is None:
            await _attach(loop, connection, opened, self._proxy_context(), self._proxy.host)
        else:  # the proxy sees where we go, and nothing of what we say there
            tunnel = _Tunnel(loop)
            await _attach(loop, tunnel, opened, self._proxy_context(), self._proxy.host)
            through = await tunnel.to(self._server, proxy_headers(self._proxy))
            await _secure(loop, through, connection, context, self._server_name)
        return connection

    def _context(self, tls: ssl.SSLContext | bool) -> ssl.SSLContext | None:
        if not self._server.secure:
            return None
        return tls if isinstance(tls, ssl.SSLContext) else self._trusting_the_system()

    def _proxy_context(self) -> ssl.SSLContext | None:
        return self._trusting_the_system() if self._proxy is not None and self._proxy.secure else None

    def _trusting_the_system(self) -> ssl.SSLContext:
        if self._system_trust is None:
            self._system_trust = client_context()
        return self._system_trust

    async def _open(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """A TCP connection to the server, or to the proxy before it."""
        addresses = await self._resolve(loop)
        try:
            return await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER, loop=loop
            )
        except BaseException:
            self._addresses = None  # perhaps it has moved
            raise

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> list[AddressInfo]:
        """The addresses, asked for once by however many connections are being opened."""
        place = self._proxy or self._server
        async with self._resolving:
            if self._addresses is None or self._addresses[0] < loop.time():
                found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
                for *_, address in found:
                    if self._guard is not None:
                        self._guard(str(address[0]))
                self._addresses = (loop.time() + _ADDRESSES_LAST, list(found))
            return self._addresses[1]


def proxy_headers(proxy: HttpUrl) -> dict[str, str]:
    """What says who we are to a proxy, if its URL does."""
    if not proxy.login:
        return {}
    return {"Proxy-Authorization": f"Basic {base64.b64encode(proxy.login.encode()).decode()}"}


async def _attach(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.Protocol,
    opened: socket.socket,
    context: ssl.SSLContext | None,
    name: str,
) -> None:
    first = protocol if context is None else asyncio.Protocol()
    try:
        transport, _ = await loop.create_connection(lambda: first, sock=opened)
    except BaseException:
        opened.close()
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
    """Speak TLS from here on.

    Not left to `create_connection`: asyncio's forgets the socket if it is cancelled before the handshake has begun.
    """
    try:
        secured = await loop.start_tls(transport, protocol, context, server_hostname=name)
        assert secured is not None
        protocol.connection_made(secured)
    except BaseException:
        transport.abort()
        raise


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a way to a server; after its answer the connection is the server's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answered: asyncio.Future[None] = loop.create_future()
        self._answered.add_done_callback(_nobody_need_ask)
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    async def to(self, server: HttpUrl, headers: dict[str, str]) -> asyncio.Transport:
        """Where to speak to the server, once the proxy has agreed."""
        assert self._transport is not None
        lines = [f"CONNECT {server} HTTP/1.1", f"Host: {server}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            if not self._answered.done():
                self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            await self._answered
        except BaseException:
            self._transport.abort()
            raise
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if self._answered.done() or (not end and len(self._answer) < _MAX_PROXY_ANSWER):
            return
        line = head.split(b"\r\n", 1)[0][:200].decode("latin-1")
        version, _, status = line.partition(" ")
        if not end or not version.startswith("HTTP/1.") or (rest and status.startswith("2")):
            self._answered.set_exception(ProxyError(f"the proxy does not answer as one: {line!r}"))
        elif status.startswith("2"):
            self._answered.set_result(None)
        else:
            self._answered.set_exception(ProxyError(f"the proxy refused: {status}"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(error or ProxyError("the proxy closed the connection"))


def _nobody_need_ask(answered: asyncio.Future[None]) -> None:
    """Who asked may have gone; that is no error that was missed."""
    if not answered.cancelled():
        answered.exception()

"""How requests reach a cluster: the `Transport` protocol, and `HttpTransport` with its pool of connections.

Everything that talks to a cluster goes through one `Transport`. That is what lets a test run without sockets
and cut any request in half.
"""

import asyncio
import functools
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from kapsa.runtime.client.auth.access import Authorization, ClusterAccess
from kapsa.runtime.client.auth.credentials import Headers as Pairs
from kapsa.runtime.client.http._connection import BufferedReceiver, HttpConnection, StreamReceiver
from kapsa.runtime.client.http._connector import Connector, proxy_headers
from kapsa.runtime.client.http._pool import ConnectionPool, PoolExhaustedError
from kapsa.runtime.client.http.url import HttpUrl
from kapsa.runtime.errors import CertificateError, NoResponse, ResponseTooLarge, TransportError

__all__ = ["HttpTransport", "Response", "StreamResponse", "Transport"]

Query = Sequence[tuple[str, str]]

_NO_HEADERS: Mapping[str, str] = {}
# OpenSSL's X509_V_ERR_ numbers.
_OTHER_NAME = (62, 64)
_OTHER_AUTHORITY = (2, 7, 18, 19, 20, 21)
_OTHER_TIME = (9, 10)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL calls an answer that is no TLS."""
_OUR_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA")
"""What OpenSSL calls a server's refusal of who we are. In TLS 1.3 it comes after our first request."""
_UNSAFE = re.compile(r"[\r\n\0]")


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes


class StreamResponse(Protocol):
    """An answer that is still arriving. Iterate it for raw chunks of bytes, cut anywhere."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """Carries requests to one cluster. It raises `TransportError` when no answer came; it judges no answer."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Response:
        """Send one request and read the whole answer."""
        ...

    def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Send one request and read the answer as it comes: watches and followed logs."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class HttpTransport:
    """HTTP to a real API server.

    Requests share a limited pool of connections. Watches have connections of their own without a limit: a process
    that watches more kinds than a pool has room for would otherwise wait for itself forever.
    Redirects are never followed: they would carry the credentials elsewhere.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        connections: int = 32,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        max_response_bytes: int = 256 * 1024 * 1024,
        user_agent: str = "kapsa",
    ) -> None:
        self._access = access
        self._server = HttpUrl.parse(access.server)
        self._proxy = HttpUrl.parse(access.proxy) if access.proxy else None
        connector = Connector(
            self._server, server_name=access.server_name, proxy=self._proxy, guard=access.address_guard
        )
        self._pool = ConnectionPool(connector, limit=connections, connect_timeout=connect_timeout)
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._common: Pairs = (("Host", self._server.authority), ("User-Agent", user_agent))
        self._target = self._server.path
        if self._proxy is not None and not self._server.secure:  # it needs to be told where to
            self._target = f"http://{self._server.authority}{self._server.path}"
            self._common = (*self._common, *proxy_headers(self._proxy).items())
        self._head = functools.lru_cache(maxsize=256)(self._write_head)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Response:
        deadline = asyncio.get_running_loop().time() + (timeout if timeout is not None else self._timeout)
        target = self._target_of(path, query)
        authorization = await self._access.authorize()
        response = await self._exchange(method, target, headers, body, deadline, authorization)
        if response.status == 401 and await self._access.rejected(authorization):
            authorization = await self._access.authorize()
            response = await self._exchange(method, target, headers, body, deadline, authorization)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AsyncIterator[StreamResponse]:
        target = self._target_of(path, query)
        authorization = await self._access.authorize()
        connection, answer = await self._open_stream(method, target, headers, authorization)
        try:
            if answer.status == 401 and await self._access.rejected(authorization):
                connection.abort()
                authorization = await self._access.authorize()
                connection, answer = await self._open_stream(method, target, headers, authorization)
            yield _HttpStream(answer, self._what(method, target))
        finally:
            # The rest of a watch is endless, so the connection can't be used again.
            connection.abort()

    async def close(self) -> None:
        await self._pool.close()

    async def _exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        deadline: float,
        authorization: Authorization,
    ) -> Response:
        loop = asyncio.get_running_loop()
        request = self._request(method, target, headers, authorization.headers, body)
        # Getting credentials may have taken its time, and a write must not leave after its deadline.
        if deadline <= loop.time():
            raise NoResponse(f"{self._what(method, target)}: no credentials in time", sent=False)
        answer = BufferedReceiver(loop, limit=self._max_response_bytes)
        connection = await self._borrow(authorization.tls, deadline, method, target)
        timer = loop.call_at(deadline, answer.fail, TimeoutError())
        try:
            if deadline <= loop.time():  # something kept the event loop busy
                raise NoResponse(f"{self._what(method, target)}: could not connect in time", sent=False)
            connection.send(request, answer)
            content = await answer.done
        except ResponseTooLarge as error:
            raise ResponseTooLarge(f"{self._what(method, target)}: {error}") from None
        except OSError as error:
            raise _broken(error, self._what(method, target)) from error
        finally:
            timer.cancel()
            self._pool.give_back(connection, authorization.tls)
        return Response(answer.status, answer.headers, content)

    async def _borrow(
        self, tls: ssl.SSLContext | bool, deadline: float, method: str, target: str
    ) -> HttpConnection:
        try:
            return await self._pool.borrow(tls, deadline)
        except PoolExhaustedError:
            told = "all connections were in use until it was too late"
            raise NoResponse(f"{self._what(method, target)}: {told}", sent=False) from None
        except OSError as error:
            raise _unconnected(error, self._what(method, target)) from error

    async def _open_stream(
        self, method: str, target: str, headers: Mapping[str, str], authorization: Authorization
    ) -> tuple[HttpConnection, StreamReceiver]:
        request = self._request(method, target, headers, authorization.headers, b"")
        try:
            connection = await self._pool.connect(authorization.tls)
        except OSError as error:
            raise _unconnected(error, self._what(method, target)) from error
        answer = StreamReceiver(asyncio.get_running_loop(), connection)
        try:
            connection.send(request, answer)
            # Only its head: what follows may take as long as it likes.
            async with asyncio.timeout(self._timeout):
                await answer.begun
        except OSError as error:
            connection.abort()
            raise _broken(error, self._what(method, target)) from error
        except BaseException:
            connection.abort()
            raise
        return connection, answer

    # -- requests ----------------------------------------------------------------------------------------------

    def _target_of(self, path: str, query: Query) -> str:
        target = f"{self._target}{path}?{_encode(tuple(query))}" if query else self._target + path
        if not target.isascii() or " " in target or _UNSAFE.search(target):
            raise ValueError(f"{path!r} is no path of a URL: quote it")
        return target

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], who: Pairs, body: bytes
    ) -> bytes:
        head = self._head(tuple(headers.items()), who)
        if not body and method in ("GET", "DELETE"):
            return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target.encode(), head)
        return b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (
            method.encode(),
            target.encode(),
            head,
            len(body),
            body,
        )

    def _write_head(self, headers: Pairs, who: Pairs) -> bytes:
        """The lines that nearly all requests of a kind share."""
        given = {name.lower() for name, _ in headers}
        common = self._common
        if "accept-encoding" not in given:
            common = (*common, ("Accept-Encoding", "identity"))
        lines = [f"{name}: {value}" for name, value in (*common, *headers, *who)]
        for line in lines:
            if _UNSAFE.search(line):
                raise ValueError(f"a header must be one line: {line.partition(':')[0]!r}")
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _what(self, method: str, target: str) -> str:
        path = target.removeprefix(self._target).partition("?")[0]
        return f"{method} {self._server.path}{path} at {self._server}"


class _HttpStream:
    """A streamed answer whose failures are ours."""

    def __init__(self, answer: StreamReceiver, what: str) -> None:
        self._answer = answer
        self._what = what
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer:
                yield chunk
        except OSError as error:
            raise _broken(error, self._what) from error


@functools.lru_cache(maxsize=1024)
def _encode(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


def _unconnected(error: OSError, what: str) -> TransportError:
    """Our error for a connection that did not come about: the server has not seen the request."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(
            f"{what}: the server's certificate is not trusted: {_distrust(error)}", sent=False
        )
    if isinstance(error, ssl.SSLError):
        hint = (
            "; it does not seem to speak TLS: is its address an http:// one?"
            if error.reason in _NOT_TLS
            else ""
        )
        return CertificateError(f"{what}: TLS failed: {_told(error)}{hint}", sent=False)
    if isinstance(error, TimeoutError) and error.errno is None:
        return NoResponse(f"{what}: could not connect in time", sent=False)
    return TransportError(f"{what}: could not connect: {_told(error)}", sent=False)


def _broken(error: OSError, what: str) -> TransportError:
    """Our error for an exchange that failed on the way: the server may have seen the request."""
    if isinstance(error, ssl.SSLError) and any(each in (error.reason or "") for each in _OUR_CERTIFICATE):
        return CertificateError(f"{what}: TLS failed: {_told(error)}", sent=False)
    if isinstance(error, TimeoutError) and error.errno is None:
        return NoResponse(f"{what}: no answer in time")
    return TransportError(f"{what}: the connection failed: {_told(error)}")


def _distrust(refusal: ssl.SSLCertVerificationError) -> str:
    """What is wrong with a certificate, and what to look at."""
    words = refusal.verify_message.rstrip(".")
    if refusal.verify_code in _OTHER_NAME:
        return f"{words}; reach it by a name that is in it, or say the name to expect with tls-server-name"
    if refusal.verify_code in _OTHER_AUTHORITY:
        return f"{words}; it was not signed by the certificate-authority we are to trust: is this the right cluster?"
    if refusal.verify_code in _OTHER_TIME:
        return f"{words}; renew it, and compare the clocks of both machines"
    return words


def _told(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio's own words are a call, not a reason
    return error.strerror or str(error) or type(error).__name__

"""The transport of requests to a cluster: the `Transport` protocol and its HTTP implementation.

All requests to a cluster go through one `Transport`. A test can replace it, to run without sockets and to
fail any request half-way.
"""

import asyncio
import functools
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
BeforeSend = Callable[[], float | None]
"""Called right before a request is sent. Raises to stop it, or returns the seconds that it may take (None: no limit)."""

_NO_HEADERS: Mapping[str, str] = {}
# OpenSSL's X509_V_ERR_ numbers.
_NAME_MISMATCH = (62, 64)
_UNKNOWN_AUTHORITY = (2, 7, 18, 19, 20, 21)
_NOT_VALID_NOW = (9, 10)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons for a response that is not TLS."""
_CLIENT_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA")
"""OpenSSL's reasons for a rejected client certificate.

In TLS 1.3 the rejection arrives after the first request.
"""
_UNSAFE = re.compile(r"[\r\n\0]")


class Response(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """The headers, by their names in lower case."""
    body: bytes


class StreamResponse(Protocol):
    """A response that is still arriving. Iterating yields chunks of bytes, split anywhere."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """A transport of requests to one cluster.

    Raises `TransportError` if no response arrives; any status is a response.
    """

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        timeout: float | None = None,
        before_send: BeforeSend | None = None,
    ) -> Response:
        """Send one request and read the whole response.

        `before_send` is called after every wait, for credentials or a connection, each time that the request is sent.
        """
        ...

    def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Send one request and read the response as it arrives, as for watches and followed logs."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class HttpTransport:
    """A transport of requests to an API server over HTTP.

    Requests share a limited pool of connections. Each watch has a connection of its own, outside that limit:
    a process that watches more kinds than the pool has connections would otherwise wait for itself forever.
    Redirects are never followed, because they would send the credentials to another server.
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
            self._server,
            server_name=access.server_name,
            proxy=self._proxy,
            proxy_authority=lambda: access.proxy_authority,
            guard=access.address_guard,
        )
        self._pool = ConnectionPool(connector, limit=connections, connect_timeout=connect_timeout)
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._common: Pairs = (("Host", self._server.authority), ("User-Agent", user_agent))
        self._target = self._server.path
        if self._proxy is not None and not self._server.secure:  # a plain proxy needs the whole URL
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
        before_send: BeforeSend | None = None,
    ) -> Response:
        deadline = asyncio.get_running_loop().time() + (timeout if timeout is not None else self._timeout)
        target = self._target_of(path, query)
        authorization = await self._access.authorize()
        response = await self._exchange(method, target, headers, body, deadline, authorization, before_send)
        if response.status == 401 and await self._access.rejected(authorization):
            authorization = await self._access.authorize()
            response = await self._exchange(
                method, target, headers, body, deadline, authorization, before_send
            )
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AsyncIterator[StreamResponse]:
        target = self._target_of(path, query)
        authorization = await self._access.authorize()
        connection, receiver = await self._open_stream(method, target, headers, authorization)
        try:
            if receiver.status == 401 and await self._access.rejected(authorization):
                connection.abort()
                authorization = await self._access.authorize()
                connection, receiver = await self._open_stream(method, target, headers, authorization)
            yield _HttpStream(receiver, self._action(method, target))
        finally:
            # A watch has no end, so its connection cannot be reused.
            connection.abort()

    def close_idle(self) -> None:
        """Close the connections that no request uses. The next requests open new ones."""
        self._pool.close_idle()

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
        before_send: BeforeSend | None,
    ) -> Response:
        loop = asyncio.get_running_loop()
        request = self._request(method, target, headers, authorization.headers, body)
        # Getting credentials may have taken a while, and a write must not be sent after its deadline.
        if deadline <= loop.time():
            raise NoResponse(
                f"{self._action(method, target)}: timed out while getting credentials", sent=False
            )
        receiver = BufferedReceiver(loop, limit=self._max_response_bytes)
        connection = await self._borrow(authorization.tls, deadline, method, target)
        timer: asyncio.TimerHandle | None = None
        try:
            # A suspension of the machine, during a wait, counts for the caller, but not on the clock of the loop.
            if before_send is not None and (seconds := before_send()) is not None:
                deadline = min(deadline, loop.time() + seconds)
            if deadline <= loop.time():  # something kept the event loop busy
                raise NoResponse(f"{self._action(method, target)}: timed out while connecting", sent=False)
            timer = loop.call_at(deadline, receiver.fail, TimeoutError())
            connection.send(request, receiver)
            content = await receiver.done
        except ResponseTooLarge as error:
            raise ResponseTooLarge(f"{self._action(method, target)}: {error}") from None
        except OSError as error:
            raise _exchange_error(error, self._action(method, target)) from error
        finally:
            if timer is not None:
                timer.cancel()
            self._pool.give_back(connection, authorization.tls)
        return Response(receiver.status, receiver.headers, content)

    async def _borrow(
        self, tls: ssl.SSLContext | bool, deadline: float, method: str, target: str
    ) -> HttpConnection:
        try:
            return await self._pool.borrow(tls, deadline)
        except PoolExhaustedError:
            reason = "timed out because all connections were in use"
            raise NoResponse(f"{self._action(method, target)}: {reason}", sent=False) from None
        except OSError as error:
            raise _connect_error(error, self._action(method, target)) from error

    async def _open_stream(
        self, method: str, target: str, headers: Mapping[str, str], authorization: Authorization
    ) -> tuple[HttpConnection, StreamReceiver]:
        request = self._request(method, target, headers, authorization.headers, b"")
        try:
            connection = await self._pool.connect(authorization.tls)
        except OSError as error:
            raise _connect_error(error, self._action(method, target)) from error
        receiver = StreamReceiver(asyncio.get_running_loop(), connection)
        try:
            connection.send(request, receiver)
            # The timeout is for the head only: the body may take any time.
            async with asyncio.timeout(self._timeout):
                await receiver.begun
        except OSError as error:
            connection.abort()
            raise _exchange_error(error, self._action(method, target)) from error
        except BaseException:
            connection.abort()
            raise
        return connection, receiver

    def _target_of(self, path: str, query: Query) -> str:
        target = f"{self._target}{path}?{_encode(tuple(query))}" if query else self._target + path
        if not target.isascii() or " " in target or _UNSAFE.search(target):
            raise ValueError(f"{path!r} is not a valid path of a URL; quote it")
        return target

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], identity: Pairs, body: bytes
    ) -> bytes:
        head = self._head(tuple(headers.items()), identity)
        if not body and method in ("GET", "DELETE"):
            return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target.encode(), head)
        return b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (
            method.encode(),
            target.encode(),
            head,
            len(body),
            body,
        )

    def _write_head(self, headers: Pairs, identity: Pairs) -> bytes:
        """Return the header lines, which most requests of a kind share."""
        names = {name.lower() for name, _ in headers}
        common = self._common
        if "accept-encoding" not in names:
            common = (*common, ("Accept-Encoding", "identity"))
        lines = [f"{name}: {value}" for name, value in (*common, *headers, *identity)]
        for line in lines:
            if _UNSAFE.search(line):
                raise ValueError(f"header {line.partition(':')[0]!r} must not contain a line break")
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _action(self, method: str, target: str) -> str:
        path = target.removeprefix(self._target).partition("?")[0]
        return f"{method} {self._server.path}{path} at {self._server}"


class _HttpStream:
    """A streamed response that raises `TransportError`."""

    def __init__(self, receiver: StreamReceiver, action: str) -> None:
        self._receiver = receiver
        self._action = action
        self.status = receiver.status
        self.headers: Mapping[str, str] = receiver.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._receiver:
                yield chunk
        except OSError as error:
            raise _exchange_error(error, self._action) from error


@functools.lru_cache(maxsize=1024)
def _encode(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


def _connect_error(error: OSError, action: str) -> TransportError:
    """Return the error for a connection that failed to open: the server has not received the request."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(
            f"{action}: the server's certificate is not trusted: {_distrust(error)}", sent=False
        )
    if isinstance(error, ssl.SSLError):
        hint = (
            "; the server does not seem to use TLS: check whether its URL must start with http://"
            if error.reason in _NOT_TLS
            else ""
        )
        return CertificateError(f"{action}: TLS failed: {_reason(error)}{hint}", sent=False)
    if isinstance(error, TimeoutError) and error.errno is None:
        return NoResponse(f"{action}: timed out while connecting", sent=False)
    return TransportError(f"{action}: cannot connect: {_reason(error)}", sent=False)


def _exchange_error(error: OSError, action: str) -> TransportError:
    """Return the error for an exchange that failed under way: the server may have received the request."""
    if isinstance(error, ssl.SSLError) and any(each in (error.reason or "") for each in _CLIENT_CERTIFICATE):
        return CertificateError(f"{action}: TLS failed: {_reason(error)}", sent=False)
    if isinstance(error, TimeoutError) and error.errno is None:
        return NoResponse(f"{action}: no response in time")
    return TransportError(f"{action}: the connection failed: {_reason(error)}")


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    """Return why a certificate is not trusted, and what to check."""
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCH:
        return f"{reason}; connect by a name that the certificate contains, or set tls-server-name to one"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"{reason}; it was not issued by the configured certificate-authority: "
            "check that this is the right cluster"
        )
    if error.verify_code in _NOT_VALID_NOW:
        return f"{reason}; renew it, and compare the clocks of both machines"
    return reason


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio's own message is a call, not a reason
    return error.strerror or str(error) or type(error).__name__

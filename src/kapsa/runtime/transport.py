"""How requests reach a cluster: the `Transport` protocol, and `HttpTransport` over aiohttp.

Everything that talks to a cluster goes through one `Transport`. That is what lets a test run without sockets
and cut any request in half.
"""

import asyncio
import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from kapsa.runtime.auth import Access, Authorization
from kapsa.runtime.errors import CertificateError, NoResponse, ResponseTooLarge, TransportError
from kapsa.runtime.resolver import GuardedResolver
from kapsa.runtime.sockets import Sockets

__all__ = ["HttpTransport", "Response", "StreamResponse", "Transport"]

Query = Sequence[tuple[str, str]]

_NO_HEADERS: Mapping[str, str] = {}
# OpenSSL's X509_V_ERR_ numbers.
_OTHER_NAME = (62, 64)
_OTHER_AUTHORITY = (2, 7, 18, 19, 20, 21)
_OTHER_TIME = (9, 10)
_NO_TIME = 0.05
"""Seconds that do not count, so that nearly all requests share one time-out object."""


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
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

    Requests share a limited pool of connections. Watches have a pool of their own without a limit: a process
    that watches more kinds than a pool has room for would otherwise wait for itself forever.
    Redirects are never followed: they would carry the credentials elsewhere.
    """

    def __init__(
        self,
        access: Access,
        *,
        connections: int = 32,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        max_response_bytes: int = 256 * 1024 * 1024,
        user_agent: str = "kapsa",
    ) -> None:
        self._access = access
        self._base = access.server.rstrip("/")
        self._proxy = access.proxy
        self._server_name = access.server_name
        self._connections = connections
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_response_bytes = max_response_bytes
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._sockets = Sockets()
        self._requests: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._timeouts = functools.lru_cache(maxsize=64)(self._client_timeout)

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
        url = self._url(path, query)
        limit = timeout if timeout is not None else self._timeout
        deadline = asyncio.get_running_loop().time() + limit
        authorization = await self._access.authorize()
        response = await self._exchange(method, url, headers, body, limit, deadline, authorization)
        if response.status == 401 and await self._access.rejected(authorization):
            authorization = await self._access.authorize()
            response = await self._exchange(method, url, headers, body, limit, deadline, authorization)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AsyncIterator[StreamResponse]:
        url = self._url(path, query)
        if self._streams is None:
            self._streams = self._session(limit=0)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout)
        authorization = await self._access.authorize()
        response = await self._open(self._streams, method, url, headers, b"", limits, authorization)
        if response.status == 401 and await self._access.rejected(authorization):
            response.close()
            authorization = await self._access.authorize()
            response = await self._open(self._streams, method, url, headers, b"", limits, authorization)
        try:
            yield _HttpStream(response)
        finally:
            # Not release(): the rest of a watch is endless, so the connection can't be used again.
            response.close()

    async def close(self) -> None:
        for session in (self._requests, self._streams):
            if session is not None:
                await session.close()
        self._requests = self._streams = None
        await self._sockets.close()

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes,
        limit: float,
        deadline: float,
        authorization: Authorization,
    ) -> Response:
        if self._requests is None:
            self._requests = self._session(limit=self._connections)
        # Getting credentials may have taken its time, and a write must not leave after its deadline.
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise NoResponse(f"{method} {url.path}: no credentials in time", sent=False)
        limits = self._timeouts(limit if limit - left < _NO_TIME else left)
        response = await self._open(self._requests, method, url, headers, body, limits, authorization)
        try:
            content = await self._read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            response.close()
            raise _transport_error(error, method, url) from error
        except BaseException:
            response.close()
            raise
        return Response(response.status, response.headers, content)

    async def _open(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes,
        limits: aiohttp.ClientTimeout,
        authorization: Authorization,
    ) -> aiohttp.ClientResponse:
        carried = CIMultiDict(headers)
        carried.extend(authorization.headers)
        try:
            return await session.request(
                method,
                url,
                data=body or None,
                headers=carried,
                timeout=limits,
                ssl=authorization.tls,
                server_hostname=self._server_name,
                proxy=self._proxy,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _transport_error(error, method, url) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body, as long as it stays under the limit once decompressed."""
        limit = self._max_response_bytes
        length = response.content_length
        if length is not None and length <= limit and "Content-Encoding" not in response.headers:
            return await response.read()
        chunks: list[bytes] = []
        received = 0
        async for chunk in response.content.iter_any():
            received += len(chunk)
            if received > limit:
                raise ResponseTooLarge(
                    f"{response.method} {response.url.path}: the answer is larger than {limit} bytes; "
                    "ask for less, or raise max_response_bytes"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _session(self, *, limit: int) -> aiohttp.ClientSession:
        # The API server closes idle connections after 90 s; closing ours earlier means never writing
        # a request into one that is just being closed.
        guard = self._access.address_guard
        connector = aiohttp.TCPConnector(
            limit=limit,
            keepalive_timeout=30,
            ttl_dns_cache=30,
            resolver=GuardedResolver(guard) if guard is not None else None,
            socket_factory=self._sockets,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            skip_auto_headers=("Content-Type",),
        )

    def _client_timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=seconds, sock_connect=self._connect_timeout)

    def _url(self, path: str, query: Query) -> URL:
        text = self._base + path
        if query:
            text = f"{text}?{_encode(tuple(query))}"
        return URL(text, encoded=True)


class _HttpStream:
    """A streamed aiohttp response whose failures are ours."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _transport_error(error, self._response.method, self._response.url) from error


@functools.lru_cache(maxsize=1024)
def _encode(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


def _transport_error(error: BaseException, method: str, url: URL) -> TransportError:
    """Our error for aiohttp's, saying whether the server may have seen the request."""
    what = f"{method} {url.path} at {url.host}:{url.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateError(
            f"{what}: the server's certificate is not trusted: {_distrust(error)}", sent=False
        )
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return CertificateError(f"{what}: TLS failed: {_told(error)}", sent=False)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NoResponse(f"{what}: could not connect in time", sent=False)
    if isinstance(error, TimeoutError):
        return NoResponse(f"{what}: no answer in time")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return TransportError(f"{what}: could not connect: {_told(error)}", sent=False)
    if isinstance(error, aiohttp.ClientOSError) and isinstance(error.__cause__, ssl.SSLError):
        return CertificateError(f"{what}: TLS failed: {_told(error.__cause__)}", sent=False)
    return TransportError(f"{what}: the connection failed: {_told(error)}")


def _distrust(error: aiohttp.ClientConnectorCertificateError) -> str:
    """What is wrong with a certificate, and what to look at."""
    refusal = error.certificate_error
    if not isinstance(refusal, ssl.SSLCertVerificationError):
        return str(refusal)
    words = refusal.verify_message.rstrip(".")
    if refusal.verify_code in _OTHER_NAME:
        return f"{words}; reach it by a name that is in it, or say the name to expect with tls-server-name"
    if refusal.verify_code in _OTHER_AUTHORITY:
        return f"{words}; it was not signed by the certificate-authority we are to trust: is this the right cluster?"
    if refusal.verify_code in _OTHER_TIME:
        return f"{words}; renew it, and compare the clocks of both machines"
    return words


def _told(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its own words show an SSLContext object
        failure = error.os_error
        if failure.errno is not None and failure.errno > 0:  # asyncio's own words are a call, not a reason
            return os.strerror(failure.errno)
        return failure.strerror or str(failure)
    return str(error) or type(error).__name__

"""A transport without sockets: requests go straight to an embedded devcluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from kapsa.devcluster import DevCluster, Reply, Request, RequestUser
from kapsa.runtime.client.http.transport import BeforeSend, Query, Response
from kapsa.runtime.errors import NoResponse, TransportError

__all__ = ["InProcessTransport"]

_NO_HEADERS: Mapping[str, str] = {}


class InProcessTransport:
    """A transport that carries requests to an embedded devcluster in the same process.

    `client` is the name of this client in the devcluster's fault plan. `latency` is the duration of a request
    in seconds.
    """

    def __init__(
        self,
        cluster: DevCluster,
        *,
        client: str = "",
        user: RequestUser | None = None,
        latency: float = 0.0,
    ) -> None:
        self._cluster = cluster
        self._latency = latency
        self._client = client
        self._user = user

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
        """Send one request and read the whole response."""
        try:
            async with asyncio.timeout(timeout):
                reply = await self._send(method, path, query, headers, body, before_send)
                content = reply.body
                if not isinstance(content, bytes):
                    content = b"".join([chunk async for chunk in content])
                await asyncio.sleep(0)  # a response takes a turn of the loop, as over a network
        except TimeoutError:
            raise NoResponse(f"{method} {path}: no response within {timeout} s") from None
        return Response(reply.status, reply.headers, content)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] = _NO_HEADERS
    ) -> AsyncIterator[_Stream]:
        """Send one request and stream the response."""
        reply = await self._send(method, path, query, headers, b"")
        stream = _Stream(reply, f"{method} {path}")
        try:
            yield stream
        finally:
            await stream.close()

    async def close(self) -> None:
        """Do nothing: no connection is open between requests."""

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        body: bytes,
        before_send: BeforeSend | None = None,
    ) -> Reply:
        await asyncio.sleep(self._latency)
        if before_send is not None:
            before_send()
        request = Request(
            method=method,
            path=path,
            query=urlencode(query),
            headers={name.lower(): value for name, value in headers.items() if name != "Accept-Encoding"},
            body=body,
            client=self._client,
            user=self._user,
        )
        try:
            return await self._cluster.handle(request)
        except ConnectionError as error:
            raise TransportError(f"{method} {path}: {error}") from error


class _Stream:
    """A response whose body is still arriving."""

    def __init__(self, reply: Reply, action: str) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._body = reply.body
        self._action = action

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            if self._body:
                yield self._body
            return
        try:
            async for chunk in self._body:
                yield chunk
        except ConnectionError as error:
            raise TransportError(f"{self._action}: {error}") from error

    async def close(self) -> None:
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

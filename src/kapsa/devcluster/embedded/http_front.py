"""The HTTP door: aiohttp's low-level server in front of :meth:`Server.handle`."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from kapsa.devcluster.embedded import errors
from kapsa.devcluster.embedded.exchange import ConnectionDroppedError, Reply, Request
from kapsa.devcluster.embedded.writing.bodies import MAXIMUM_BYTES

__all__ = ["HttpFront"]

_GZIP_FROM = 128 * 1024
"""Smaller bodies are not worth the compression; the real server draws the line here too."""
CLIENT_HEADER = "x-kapsa-client"
"""Names the client to the fault plan; a simulation sets it, others need not."""
_NEXT_WARNING = re.compile(r', (?=299 - ")')
_BODILESS = frozenset({"GET", "HEAD"})


class Handler(Protocol):
    """What answers requests: an embedded server, or a proxy before a real one."""

    async def handle(self, request: Request) -> Reply: ...


class HttpFront:
    """Serves requests on a loopback port until closed."""

    def __init__(
        self, server: Handler, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._tls = tls
        self._front: web.Server | None = None
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen; afterwards :attr:`url` says where."""
        # Without handler cancellation, the watch of a client that went away would wait for its next event for ever.
        self._front = web.Server(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0
        )
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            self._front, self._host, self._port, ssl=self._tls, backlog=1024
        )
        bound: socket.socket = self._listener.sockets[0]
        self._port = bound.getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end every request, watches included."""
        if self._listener is not None:
            self._listener.close()
        if self._front is not None:
            await self._front.shutdown(timeout=0.1)
        if self._listener is not None:
            await self._listener.wait_closed()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in incoming.headers.items()}
        body = b""
        if incoming.method not in _BODILESS and incoming.body_exists:
            read = await _read_limited(incoming)
            if read is None:
                return _plain(errors.too_large(MAXIMUM_BYTES).reply())
            body = read
        request = Request(
            method=incoming.method,
            path=incoming.rel_url.raw_path,
            query=incoming.rel_url.raw_query_string,
            headers=headers,
            body=body,
            client=headers.get(CLIENT_HEADER, ""),
        )
        try:
            reply = await self._server.handle(request)
        except ConnectionDroppedError:
            return _drop(incoming)
        if isinstance(reply.body, bytes):
            return _plain(reply, compress="gzip" in headers.get("accept-encoding", ""))
        return await _stream(incoming, reply, reply.body)


def _drop(incoming: web.BaseRequest) -> web.Response:
    """Close the connection; what is returned to aiohttp reaches nobody."""
    if incoming.transport is not None:
        incoming.transport.abort()
    return web.Response(status=500)


async def _read_limited(incoming: web.BaseRequest) -> bytes | None:
    """The body, or None when it is longer than an API server reads."""
    declared = incoming.content_length
    if declared is not None and declared > MAXIMUM_BYTES:
        return None
    chunks, size = [], 0
    async for chunk in incoming.content.iter_any():
        size += len(chunk)
        if size > MAXIMUM_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _plain(reply: Reply, *, compress: bool = False) -> web.Response:
    assert isinstance(reply.body, bytes)
    headers, body = reply.headers, reply.body
    if compress and len(body) > _GZIP_FROM:
        headers = {**headers, "content-encoding": "gzip", "vary": "Accept-Encoding"}
        body = gzip.compress(body, compresslevel=1)
    return web.Response(status=reply.status, headers=_headers(headers), body=body)


def _headers(headers: dict[str, str]) -> CIMultiDict[str]:
    """Headers as they are sent: each warning is one of its own."""
    found = CIMultiDict(headers)
    warnings = _NEXT_WARNING.split(headers.get("warning", ""))
    if len(warnings) > 1:
        del found["warning"]
        found.extend([("warning", warning) for warning in warnings])
    return found


async def _stream(
    incoming: web.BaseRequest, reply: Reply, frames: AsyncIterator[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(incoming)
        async for frame in frames:
            await response.write(frame)
        await response.write_eof()
    except (ConnectionResetError, HttpProcessingError):
        # The client went away; there is nobody left to tell.
        pass
    finally:
        closing = getattr(frames, "aclose", None)
        if closing is not None:
            with contextlib.suppress(RuntimeError):
                await closing()
    return response

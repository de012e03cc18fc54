"""The HTTP door: a listener on the loopback that hands requests to whatever answers them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import re
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ConnectionDroppedError, Reply, Request
from kapsa.devcluster.wire.http import (
    MAXIMUM_HEAD,
    Body,
    Head,
    WireError,
    chunk,
    parse_head,
    response_head,
)

if TYPE_CHECKING:
    import ssl

__all__ = ["CLIENT_HEADER", "HttpFront"]

log = logging.getLogger(__name__)

CLIENT_HEADER = "x-kapsa-client"
"""Names the client to the fault plan; a simulation sets it, others need not."""
_GZIP_FROM = 128 * 1024
"""Smaller bodies are not worth the compression; the real server draws the line here too."""
_READ_AHEAD = 256 * 1024
"""How much of the next request is kept while one is answered."""
_MAXIMUM_BODY = 3 * 1024 * 1024
"""Bytes of the largest body that kube-apiserver reads."""
_NEXT_WARNING = re.compile(r', (?=299 - ")')


class Handler(Protocol):
    """What answers requests: an embedded server, or a proxy before a real one."""

    async def handle(self, request: Request) -> Reply: ...


class HttpFront:
    """Serves requests on a loopback port until closed."""

    def __init__(
        self, server: Handler, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.handler = server
        self.connections: set[_Connection] = set()
        self._host = host
        self._port = port
        self._tls = tls
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen; afterwards :attr:`url` says where."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), self._host, self._port, ssl=self._tls, backlog=1024
        )
        self._port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end every request, watches included."""
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*(connection.end() for connection in list(self.connections)))
        if self._listener is not None:
            await self._listener.wait_closed()


class _Connection(asyncio.Protocol):
    """One client: a request is read, answered, and then the next one."""

    def __init__(self, front: HttpFront) -> None:
        self._front = front
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._head: Head | None = None
        self._body: Body | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._ended = False
        self._streams = False

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._front.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._front.connections.discard(self)
        self._transport = None
        # Without this, the watch of a client that went away would wait for its next event for ever.
        if self._task is not None:
            self._task.cancel()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._advance()
        elif len(self._buffer) > _READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        # A client may end its side and still wait for the answer; of a stream nobody waits for the end.
        self._ended = True
        return self._task is not None and not self._streams

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Reading

    def _advance(self) -> None:
        """Read on; begin to answer once a request is whole."""
        try:
            if self._head is None and not self._read_head():
                return
            assert self._body is not None
            self._buffer = self._body.feed(self._buffer)
        except WireError as error:
            self._refuse(error)
            return
        if self._body.done:
            self._task = self._loop.create_task(self._answer(self._head, self._body))  # type: ignore[arg-type]
            self._head = self._body = None

    def _read_head(self) -> bool:
        # Empty lines before a request are forgiven, as old clients send them after a body.
        if self._buffer[:2] == b"\r\n":
            self._buffer = self._buffer.lstrip(b"\r\n")
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAXIMUM_HEAD or (end < 0 and len(self._buffer) > MAXIMUM_HEAD):
            raise WireError(431, "request header fields too large")
        if end < 0:
            _refuse_what_never_ends(self._buffer)
            return False
        self._head = parse_head(self._buffer[:end])
        self._buffer = self._buffer[end + 4 :]
        self._body = Body(self._head.length, _MAXIMUM_BODY)
        if self._head.expects_continue and not self._body.done:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _refuse(self, error: WireError) -> None:
        body = f"{error.status} {error}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("connection", "close"),
            ("content-length", str(len(body))),
        ]
        self._write(response_head(error.status, headers) + body)
        if self._transport is not None:
            self._transport.close()

    # Answering

    async def _answer(self, head: Head, body: Body) -> None:
        try:
            keeps_alive = await self._exchange(head, body)
        except ConnectionDroppedError:
            self._abort()
            return
        except Exception:
            # A reply that broke off: a client left waiting for the rest of it would wait for ever.
            log.exception("the answer to %s %s broke off", head.method, head.path)
            self._abort()
            return
        finally:
            self._task = None
        transport = self._transport
        if transport is None:
            return
        if not keeps_alive or (self._ended and not self._buffer):
            transport.close()
            return
        transport.resume_reading()
        if self._buffer:
            self._advance()

    async def _exchange(self, head: Head, body: Body) -> bool:
        """Answer one request; whether the connection can take another."""
        if body.too_large:
            reply = errors.too_large(_MAXIMUM_BODY).reply()
        else:
            reply = await self._front.handler.handle(
                Request(
                    method=head.method,
                    path=head.path,
                    query=head.query,
                    headers=head.headers,
                    body=body.value,
                    client=head.headers.get(CLIENT_HEADER, ""),
                )
            )
        if isinstance(reply.body, bytes):
            self._send(head, reply, reply.body)
            await self._drain()
            return head.keeps_alive
        return await self._stream(head, reply, reply.body)

    def _send(self, head: Head, reply: Reply, body: bytes) -> None:
        headers = _header_lines(reply.headers)
        if len(body) > _GZIP_FROM and "gzip" in head.headers.get("accept-encoding", ""):
            headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
            body = gzip.compress(body, compresslevel=1)
        if reply.status != 304:
            headers.append(("content-length", str(len(body))))
        if not head.keeps_alive:
            headers.append(("connection", "close"))
        start = response_head(reply.status, headers)
        if head.method == "HEAD":
            self._write(start)
        elif len(body) < _GZIP_FROM:
            self._write(start + body)
        else:
            self._write(start)
            self._write(body)

    async def _stream(self, head: Head, reply: Reply, frames: AsyncIterator[bytes]) -> bool:
        """Send frames as they come. An old client gets them plain, and the end of the connection as their end."""
        keeps_alive = head.keeps_alive and not head.is_old
        framing = ("connection", "close") if head.is_old else ("transfer-encoding", "chunked")
        self._write(response_head(reply.status, [*_header_lines(reply.headers), framing]))
        self._streams = True
        try:
            async for frame in frames:
                if not frame:
                    # An empty chunk would say that this is the end.
                    continue
                self._write(frame if head.is_old else chunk(frame))
                await self._drain()
            if not head.is_old:
                self._write(chunk(b""))
        finally:
            self._streams = False
            closing = getattr(frames, "aclose", None)
            if closing is not None:
                with contextlib.suppress(RuntimeError):
                    await closing()
        return keeps_alive

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _drain(self) -> None:
        if self._writable is not None:
            await self._writable

    async def end(self) -> None:
        """Close the connection, whatever it is doing."""
        task = self._task
        self._abort()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _refuse_what_never_ends(start: bytes) -> None:
    """Tell who does not speak HTTP, instead of waiting with them."""
    if start[:1] == b"\x16":
        raise WireError(400, "this port speaks HTTP, not HTTPS")
    if start[:1] < b"!" and start[:1] not in (b"", b"\r", b"\n"):
        raise WireError(400, "malformed request line")
    if b"\n\n" in start:
        raise WireError(400, "lines of a request end in CR and LF")


def _header_lines(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Headers as they are sent: each warning is one of its own."""
    lines = [("date", _date()), *headers.items()]
    warnings = headers.get("warning")
    if warnings is not None and ", " in warnings:
        lines.remove(("warning", warnings))
        lines += [("warning", warning) for warning in _NEXT_WARNING.split(warnings)]
    return lines


_told: tuple[int, str] = (0, "")


def _date() -> str:
    """The Date header, made once a second."""
    global _told  # noqa: PLW0603  a cache of one
    now = int(time.time())
    if _told[0] != now:
        _told = (now, formatdate(now, usegmt=True))
    return _told[1]

"""The HTTP listener: serves a handler's replies on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from kapsa.devcluster.log import log_exception
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import ConnectionDroppedError, Reply, Request, RequestUser
from kapsa.devcluster.wire.http import (
    MAXIMUM_HEAD,
    Body,
    Head,
    WireError,
    chunk,
    parse_head,
    response_head,
)
from kapsa.devcluster.wire.peer import remote_page, user_of_connection

if TYPE_CHECKING:
    import socket
    import ssl

__all__ = ["CLIENT_HEADER", "HttpFront"]


CLIENT_HEADER = "x-kapsa-client"
"""Header with the client's name in fault plans. Optional."""
_GZIP_FROM = 128 * 1024
"""Bytes from which a body is compressed, as in the real server."""
_READ_AHEAD = 256 * 1024
"""Bytes of the next request that are buffered while one is served."""
_MAXIMUM_BODY = 3 * 1024 * 1024
"""Bytes of the largest body that kube-apiserver reads."""
_NEXT_WARNING = re.compile(r', (?=299 - ")')


class Handler(Protocol):
    """A server of requests: the embedded one, or a proxy in front of a real one."""

    async def handle(self, request: Request) -> Reply: ...


class HttpFront:
    """A server of requests on a loopback port, until it is closed."""

    def __init__(
        self,
        server: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        """Configure a front on a host and port, or on a socket that listens already."""
        self.handler = server
        self.connections: set[_Connection] = set()
        self._host = host
        self._port = port
        self._tls = tls
        self._socket = listener
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Base URL of the listener."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{self._host}:{self._port}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listener."""
        return self._host, self._port

    async def start(self, port: int | None = None) -> None:
        """Start to listen, on another port than the configured one if given; `url` is valid afterwards."""
        loop = asyncio.get_running_loop()
        if self._socket is None:
            self._listener = await loop.create_server(
                lambda: _Connection(self),
                self._host,
                self._port if port is None else port,
                ssl=self._tls,
                backlog=1024,
            )
        else:
            self._listener = await loop.create_server(
                lambda: _Connection(self), sock=self._socket, ssl=self._tls, backlog=1024
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
    """One client's connection, which serves one request after the other."""

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
        self._user: RequestUser | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._user = user_of_connection(transport)
        self._front.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._front.connections.discard(self)
        self._transport = None
        # Otherwise the watch of a disconnected client would wait for its next event forever.
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
        # A client may close its side and still wait for the reply, but not for the end of a stream.
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
        """Read more; serve the request once it is complete."""
        try:
            if self._head is None and not self._read_head():
                return
            assert self._body is not None
            self._buffer = self._body.feed(self._buffer)
        except WireError as error:
            self._reject(error)
            return
        if self._body.done:
            self._task = self._loop.create_task(self._answer(self._head, self._body))  # type: ignore[arg-type]
            self._head = self._body = None

    def _read_head(self) -> bool:
        # Old clients send an empty line after a body.
        if self._buffer[:2] == b"\r\n":
            self._buffer = self._buffer.lstrip(b"\r\n")
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAXIMUM_HEAD or (end < 0 and len(self._buffer) > MAXIMUM_HEAD):
            raise WireError(431, "request header fields too large")
        if end < 0:
            _reject_incomplete(self._buffer)
            return False
        self._head = parse_head(self._buffer[:end])
        self._buffer = self._buffer[end + 4 :]
        self._body = Body(self._head.length, _MAXIMUM_BODY)
        if self._head.expects_continue and not self._body.done:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _reject(self, error: WireError) -> None:
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
        except Exception as error:
            # The reply is incomplete: its client would wait for the rest forever.
            log_exception("reply failed before its end", error, method=head.method, path=head.path)
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
        """Serve one request. Return whether the connection can take another."""
        if body.too_large:
            reply = errors.too_large(_MAXIMUM_BODY).reply()
        elif self._user is None and (page := remote_page(head.headers)):
            reply = _refuse_page(page)
        else:
            reply = await self._front.handler.handle(
                Request(
                    method=head.method,
                    path=head.path,
                    query=head.query,
                    headers=head.headers,
                    body=body.value,
                    client=head.headers.get(CLIENT_HEADER, ""),
                    user=self._user,
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
        """Send frames as they arrive. A client of HTTP/1.0 gets them without chunks, up to the end of the connection."""
        keeps_alive = head.keeps_alive and not head.is_old
        framing = ("connection", "close") if head.is_old else ("transfer-encoding", "chunked")
        self._write(response_head(reply.status, [*_header_lines(reply.headers), framing]))
        self._streams = True
        try:
            async for frame in frames:
                if not frame:
                    # An empty chunk would end the body.
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
        """Close the connection, even in the middle of a reply."""
        task = self._task
        self._abort()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _reject_incomplete(start: bytes) -> None:
    """Raise WireError for bytes that can never become a head, instead of waiting for its end."""
    if start[:1] == b"\x16":
        raise WireError(400, "this port serves HTTP, not HTTPS")
    if start[:1] < b"!" and start[:1] not in (b"", b"\r", b"\n"):
        raise WireError(400, "malformed request line")
    if b"\n\n" in start:
        raise WireError(400, "lines of a request must end in CR LF")


def _refuse_page(page: str) -> Reply:
    message = (
        f"the request comes from a web page, or for another host: {page}. Without TLS this server answers requests "
        "for localhost and 127.0.0.1 only; use one of these names, or TLS"
    )
    return errors.StatusError(403, "Forbidden", message).reply()


def _header_lines(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Return the headers as sent, with one line for each warning."""
    lines = [("date", _date()), *headers.items()]
    warnings = headers.get("warning")
    if warnings is not None and ", " in warnings:
        lines.remove(("warning", warnings))
        lines += [("warning", warning) for warning in _NEXT_WARNING.split(warnings)]
    return lines


_last_date: tuple[int, str] = (0, "")


def _date() -> str:
    """Return the Date header, formatted once per second."""
    global _last_date  # noqa: PLW0603  a cache of one
    now = int(time.time())
    if _last_date[0] != now:
        _last_date = (now, formatdate(now, usegmt=True))
    return _last_date[1]

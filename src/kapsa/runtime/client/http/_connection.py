"""One HTTP/1.1 connection to a server, which sends requests and delivers responses whole or as they arrive.

A general HTTP client spends more CPU on a request (sessions, cookies, redirects, URL objects) than decoding
the response takes. Here a request is one write, and llhttp (through httptools) parses the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import httptools

from kapsa.runtime.errors import ResponseTooLarge

__all__ = ["BufferedReceiver", "HttpConnection", "NotHttpError", "ResponseReceiver", "StreamReceiver"]

_MAX_HEAD = 64 * 1024
_HIGH_WATER = 1024 * 1024
"""Bytes of a stream that may wait for their reader; with more, the socket is not read."""
_STATUS_WITHOUT_BODY = (204, 304)
_RESET = struct.pack("ii", 1, 0)
"""The linger option with which a socket is closed by a reset, which discards what its peer has not received."""


class NotHttpError(ConnectionError):
    """The server sent something that is not a valid HTTP/1.1 response."""


class ResponseReceiver(Protocol):
    """The receiver of one response, called as the response arrives. The last call is `end` or `fail`."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    def body(self, chunk: bytes) -> None: ...
    def end(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...


class _Decoder:
    """A decoder of gzip that never returns more than the limit, so that a compression bomb has no effect."""

    def __init__(self, headers: Mapping[str, str], limit: int) -> None:
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise NotHttpError(f"the response is encoded as {encoding!r}, which was not requested")
        self._left = limit
        self._started = False
        self._gzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None

    def __call__(self, chunk: bytes) -> bytes | None:
        """Return the decompressed chunk; None if it exceeds the limit."""
        if self._gzip is not None:
            self._started = True
            try:
                chunk = self._gzip.decompress(chunk, self._left + 1)
            except zlib.error as error:
                raise NotHttpError(f"the response is not valid gzip: {error}") from error
            if self._gzip.unused_data:
                raise NotHttpError("the response continues after the end of its gzip data")
        self._left -= len(chunk)
        return chunk if self._left >= 0 else None

    @property
    def incomplete(self) -> bool:
        """True if the gzip data ended too early."""
        return self._gzip is not None and self._started and not self._gzip.eof


class BufferedReceiver:
    """A receiver that holds a response in memory, and delivers it when it is complete."""

    __slots__ = ("_chunks", "_decoder", "_limit", "done", "headers", "status")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, limit: int) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.done: asyncio.Future[bytes] = loop.create_future()
        """The result is the body."""
        self._limit = limit
        self._chunks: list[bytes] = []

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self._decoder = _Decoder(headers, self._limit)

    def body(self, chunk: bytes) -> None:
        plain = self._decoder(chunk)
        if plain is None:
            raise ResponseTooLarge(
                f"the response is larger than {self._limit} bytes; request less, or raise max_response_bytes"
            )
        self._chunks.append(plain)

    def end(self) -> None:
        if self._decoder.incomplete:
            self.fail(NotHttpError("the gzip data of the response ended too early"))
        elif not self.done.done():
            self.done.set_result(self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks))

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class StreamReceiver:
    """A receiver of a response as an iterator of chunks. A slow reader makes the server wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: HttpConnection) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.begun: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._connection = connection
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise NotHttpError("the stream is compressed, which was not requested")
        if not self.begun.done():
            self.begun.set_result(None)

    def body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._buffered += len(chunk)
        if self._buffered > _HIGH_WATER:
            self._connection.pause()
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        if not self.begun.done():
            self.begun.set_exception(error)
        elif not self._ended:
            self._failure = error
            self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._chunks:
                chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                if self._buffered > _HIGH_WATER:
                    self._connection.resume()
                self._buffered = 0
                yield chunk
            elif self._failure is not None:
                raise self._failure
            elif self._ended:
                return
            else:
                self._arrival = self._loop.create_future()
                try:
                    await self._arrival
                finally:
                    self._arrival = None


class HttpConnection(asyncio.Protocol):
    """A connection that carries one request and its response at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: ResponseReceiver | None = None
        self._reusable = True
        self._outside_body = 0
        """Bytes of head or trailer since the last byte of a body."""
        self._in_head = True
        self._until_closed = False
        self._headers: dict[str, str] = {}

    @property
    def reusable(self) -> bool:
        """True if the connection can carry another request."""
        return (
            self._reusable
            and self._receiver is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def send(self, request: bytes, receiver: ResponseReceiver) -> None:
        """Write one request, and deliver the response to the receiver."""
        assert self._transport is not None
        self._receiver = receiver
        self._outside_body = 0
        self._in_head = True
        self._transport.write(request)

    def close(self) -> None:
        """Close the connection after what was written has been sent."""
        self._reusable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, discarding whatever may still arrive.

        The unsent part of a request that is under way is discarded, too. Otherwise the kernel goes on to
        send it for minutes, over a link that loses packets: a write would arrive long after its deadline.
        """
        self._reusable = False
        if self._transport is None:
            return
        if self._receiver is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the connection has just broken
                stream = self._transport.get_extra_info("socket")
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Close the connection at once, and fail the response that is under way with this error."""
        self.abort()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.fail(error)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- called by the event loop ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's is not asyncio.Transport

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:  # data without a request
            self.abort()
            return
        try:
            self._outside_body += len(data)
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self.fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(NotHttpError(f"the response is not HTTP/1.1: {error}"))
        else:
            if self._outside_body > _MAX_HEAD:
                part = "head" if self._in_head else "trailer"
                self.fail(NotHttpError(f"the {part} of the response is larger than {_MAX_HEAD} bytes"))

    def eof_received(self) -> bool:
        if self._until_closed and self._receiver is not None:
            self._finish()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._reusable = False
        if self._receiver is not None:
            if self._until_closed and error is None:
                self._finish()
            else:
                reason = "the server closed the connection before the response was complete"
                self.fail(error or ConnectionResetError(reason))
        if not self.ended.done():
            self.ended.set_result(None)

    # -- called by the parser --------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}
        if self._receiver is None:  # a second response to one request
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer
            return
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "replace")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._receiver is None:  # 100 Continue and the like: the response is still to come
            return
        self._in_head = False
        headers = self._headers
        self._until_closed = (
            status not in _STATUS_WITHOUT_BODY
            and "content-length" not in headers
            and "transfer-encoding" not in headers
        )
        self._receiver.begin(status, headers)

    def on_body(self, chunk: bytes) -> None:
        self._outside_body = 0
        if self._receiver is not None:
            self._receiver.body(chunk)

    def on_message_complete(self) -> None:
        if not self._in_head and self._receiver is not None:
            assert self._transport is not None
            # A response that arrives before the whole request was sent is a rejection; the rest must not be
            # sent.
            sent = self._transport.get_write_buffer_size() == 0
            self._reusable = self._reusable and sent and self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        receiver, self._receiver = self._receiver, None
        if self._until_closed:
            self._reusable = False
        if receiver is not None:
            receiver.end()

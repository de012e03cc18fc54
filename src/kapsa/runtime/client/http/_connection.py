"""One HTTP/1.1 connection to a server: a request goes out, its answer comes in, whole or as it arrives.

A general HTTP client spends more on a request than an API server's answer takes to decode: sessions, cookies,
redirects, a URL object. Here a request is one write, and llhttp (by httptools) reads the answer.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import httptools

from kapsa.runtime.errors import ResponseTooLarge

__all__ = ["BufferedReceiver", "HttpConnection", "NotHttpError", "ResponseReceiver", "StreamReceiver"]

_MAX_HEAD = 64 * 1024
_HIGH_WATER = 1024 * 1024
"""Bytes of a stream that wait for their reader before we stop reading from the socket."""
_BODILESS = (204, 304)


class NotHttpError(ConnectionError):
    """What arrived is no answer of HTTP/1.1."""


class ResponseReceiver(Protocol):
    """What a connection tells of an answer as it arrives. The last call is `end` or `fail`."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    def body(self, chunk: bytes) -> None: ...
    def end(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...


class _Decoder:
    """Undoes gzip, and never gives more than the limit allows, however small the bomb."""

    def __init__(self, headers: Mapping[str, str], limit: int) -> None:
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise NotHttpError(f"the answer is encoded as {encoding!r}, which nobody asked for")
        self._left = limit
        self._begun = False
        self._gzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None

    def __call__(self, chunk: bytes) -> bytes | None:
        """The chunk in plain; None if that would be more than the limit."""
        if self._gzip is not None:
            self._begun = True
            try:
                chunk = self._gzip.decompress(chunk, self._left + 1)
            except zlib.error as error:
                raise NotHttpError(f"the answer is not the gzip that it says: {error}") from error
            if self._gzip.unused_data:
                raise NotHttpError("the answer goes on after the end of its gzip")
        self._left -= len(chunk)
        return chunk if self._left >= 0 else None

    @property
    def cut(self) -> bool:
        """Whether more should have come."""
        return self._gzip is not None and self._begun and not self._gzip.eof


class BufferedReceiver:
    """An answer that is read to its end before anybody looks at it."""

    __slots__ = ("_chunks", "_decoder", "_limit", "done", "headers", "status")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, limit: int) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.done: asyncio.Future[bytes] = loop.create_future()
        """The body."""
        self._limit = limit
        self._chunks: list[bytes] = []

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self._decoder = _Decoder(headers, self._limit)

    def body(self, chunk: bytes) -> None:
        plain = self._decoder(chunk)
        if plain is None:
            raise ResponseTooLarge(
                f"the answer is larger than {self._limit} bytes; ask for less, or raise max_response_bytes"
            )
        self._chunks.append(plain)

    def end(self) -> None:
        if self._decoder.cut:
            self.fail(NotHttpError("the answer's gzip ends before its end"))
        elif not self.done.done():
            self.done.set_result(self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks))

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class StreamReceiver:
    """An answer that is read as it arrives. A reader that is slow makes the server wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: HttpConnection) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.begun: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._connection = connection
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._news: asyncio.Future[None] | None = None

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise NotHttpError("the stream is compressed, which nobody asked for")
        if not self.begun.done():
            self.begun.set_result(None)

    def body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._waiting += len(chunk)
        if self._waiting > _HIGH_WATER:
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
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._chunks:
                chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                if self._waiting > _HIGH_WATER:
                    self._connection.resume()
                self._waiting = 0
                yield chunk
            elif self._failure is not None:
                raise self._failure
            elif self._ended:
                return
            else:
                self._news = self._loop.create_future()
                try:
                    await self._news
                finally:
                    self._news = None


class HttpConnection(asyncio.Protocol):
    """A connection that carries one exchange after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done once the socket is closed."""
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: ResponseReceiver | None = None
        self._reusable = True
        self._beside_body = 0
        """Bytes of head or trailer since the last byte of a body."""
        self._in_head = True
        self._until_closed = False
        self._headers: dict[str, str] = {}

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on it."""
        return (
            self._reusable
            and self._answer is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def send(self, request: bytes, answer: ResponseReceiver) -> None:
        """Write one request; the answer is told of what comes back."""
        assert self._transport is not None
        self._answer = answer
        self._beside_body = 0
        self._in_head = True
        self._transport.write(request)

    def close(self) -> None:
        """Say goodbye, and let the server hear it."""
        self._reusable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once: nothing that may still come is wanted."""
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Close at once, and have whoever waits for an answer get this error."""
        answer, self._answer = self._answer, None
        self.abort()
        if answer is not None:
            answer.fail(error)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- what the event loop says ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked
            self.abort()
            return
        try:
            self._beside_body += len(data)
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self.fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(NotHttpError(f"the answer is not HTTP/1.1: {error}"))
        else:
            if self._beside_body > _MAX_HEAD:
                part = "head" if self._in_head else "trailer"
                self.fail(NotHttpError(f"the {part} of the answer is larger than {_MAX_HEAD} bytes"))

    def eof_received(self) -> bool:
        if self._until_closed and self._answer is not None:
            self._finish()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._reusable = False
        if self._answer is not None:
            if self._until_closed and error is None:
                self._finish()
            else:
                self.fail(error or ConnectionResetError("the server closed it before its answer was whole"))
        if not self.ended.done():
            self.ended.set_result(None)

    # -- what the parser says ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}
        if self._answer is None:  # a second answer to one request
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer
            return
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "replace")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._answer is None:  # 100 Continue and its like: the answer is still to come
            return
        self._in_head = False
        headers = self._headers
        self._until_closed = (
            status not in _BODILESS and "content-length" not in headers and "transfer-encoding" not in headers
        )
        self._answer.begin(status, headers)

    def on_body(self, chunk: bytes) -> None:
        self._beside_body = 0
        if self._answer is not None:
            self._answer.body(chunk)

    def on_message_complete(self) -> None:
        if not self._in_head and self._answer is not None:
            assert self._transport is not None
            # An answer that comes before the request has left is a refusal; the rest is never asked for.
            left = self._transport.get_write_buffer_size() == 0
            self._reusable = self._reusable and left and self._parser.should_keep_alive()
            self._finish()

    # -- inside ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        if self._until_closed:
            self._reusable = False
        if answer is not None:
            answer.end()

"""HTTP/1.1 as bytes: heads of requests in, heads of responses out, bodies by length or by chunks. No sockets here.

aiohttp's server would do, but importing aiohttp also loads its client, its resolvers and two stores of trusted
certificates: 0.2 s, close to half of what a devcluster may take until it is ready.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus

import msgspec

__all__ = ["Body", "Head", "WireError", "chunk", "parse_head", "response_head"]

MAXIMUM_HEAD = 64 * 1024
MAXIMUM_CHUNK_LINE = 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"(?:https?://[^/?#]*)?(/[\x21-\x7e]*|\*)")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LAST_CHUNK = b"0\r\n\r\n"


class WireError(Exception):
    """What cannot be read as HTTP; the connection ends with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(msgspec.Struct, frozen=True, gc=False):
    """The first line and the headers of a request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Names in lower case; one that comes twice has its values joined."""
    keeps_alive: bool
    length: int
    """Bytes of the body; -1 when it comes in chunks."""
    is_old: bool = False
    """HTTP/1.0, which knows no chunks."""

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"


def parse_head(data: bytes) -> Head:
    """A head, without the empty line that ends it.

    :raises WireError: when it is none.
    """
    first, _, rest = data.partition(b"\r\n")
    parts = first.decode("latin-1").split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]):
        raise WireError(400, "malformed request line")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise WireError(505, "this server speaks HTTP/1.1")
    found = _TARGET.fullmatch(target)
    if found is None:
        raise WireError(400, "malformed request target")
    path, _, query = found[1].partition("#")[0].partition("?")
    headers = _headers(rest)
    old = version == "HTTP/1.0"
    connection = headers.get("connection", "").lower()
    keeps_alive = "keep-alive" in connection if old else "close" not in connection
    return Head(method, path, query, headers, keeps_alive, _length(headers), old)


@lru_cache(maxsize=256)
def _headers(data: bytes) -> Mapping[str, str]:
    """Headers, remembered: a client sends the same ones again and again."""
    headers: dict[str, str] = {}
    # They are bytes of no particular encoding; latin-1 keeps each of them.
    for line in data.decode("latin-1").split("\r\n") if data else ():
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or _FORBIDDEN.search(value):
            raise WireError(400, "malformed header")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name == "content-length" and headers[name] != value:
                raise WireError(400, "two lengths for one body")
            value = value if name == "content-length" else f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _length(headers: Mapping[str, str]) -> int:
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        # Two ways to tell a body's end are how requests get smuggled.
        if length is not None:
            raise WireError(400, "a body has a length or comes in chunks, not both")
        if encoding.lower() != "chunked":
            raise WireError(501, "the only transfer encoding here is chunked")
        return -1
    if length is None:
        return 0
    if not length.isascii() or not length.isdigit() or len(length) > 18:
        raise WireError(400, "malformed content-length")
    return int(length)


class Body:
    """A body on its way in: fed with what arrives, it takes what is its own.

    What goes over the limit is taken and thrown away, so that the client comes to read why it is refused.
    """

    def __init__(self, length: int, limit: int) -> None:
        self.done = length == 0
        self.too_large = length > limit
        self._left = length
        self._chunked = length < 0
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._line = b""
        self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        """Take from ``data``; what is left of it belongs to the next request.

        :raises WireError: when the chunks are malformed.
        """
        while data and not self.done:
            data = self._feed_chunks(data) if self._chunked and self._left <= 0 else self._take(data)
        return data

    def _take(self, data: bytes) -> bytes:
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self.too_large = True
            self._pieces.clear()
        elif not self.too_large:
            self._pieces.append(piece)
        if self._left == 0 and not self._chunked:
            self.done = True
        return rest

    def _feed_chunks(self, data: bytes) -> bytes:
        """Read one line between chunks: a size, the end of a chunk, or a trailer."""
        end = data.find(b"\n")
        self._line += data if end < 0 else data[: end + 1]
        if len(self._line) > MAXIMUM_CHUNK_LINE:
            raise WireError(400, "malformed chunk")
        if end < 0:
            return b""
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise WireError(400, "malformed chunk")
        self._read_line(line[:-2])
        return data[end + 1 :]

    def _read_line(self, line: bytes) -> None:
        if self._in_trailers:
            self.done = not line
            return
        if self._left == 0:
            if line:
                raise WireError(400, "malformed chunk")
            self._left = -1
            return
        size = line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size):
            raise WireError(400, "malformed chunk")
        self._left = int(size, 16)
        if self._left == 0:
            self._in_trailers = True

    @property
    def value(self) -> bytes:
        return b"".join(self._pieces)


def response_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """A response's head, the empty line included."""
    lines = [_status_line(status)]
    for name, value in headers:
        if _FORBIDDEN.search(value):
            value = _FORBIDDEN.sub(" ", value)
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("utf-8", "replace")


_STATUS_LINES: dict[int, str] = {}


def _status_line(status: int) -> str:
    found = _STATUS_LINES.get(status)
    if found is None:
        known = status in HTTPStatus._value2member_map_
        phrase = HTTPStatus(status).phrase if known else "Unknown"
        found = _STATUS_LINES[status] = f"HTTP/1.1 {status} {phrase}\r\n"
    return found


def chunk(data: bytes) -> bytes:
    """A piece of a body that comes in chunks; the last one is empty."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else _LAST_CHUNK

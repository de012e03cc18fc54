"""HTTP/1.1 as bytes: heads of requests, heads of responses, bodies by length or in chunks. No sockets.

aiohttp's server would do, but importing it takes 0.2 s of the 0.5 s in which a devcluster must be ready, and for each
request it costs more than the rest of a read: the embedded engine should serve as much as a kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus

import msgspec

from kapsa.devcluster.wire.exchange import HEADER_SEPARATOR

__all__ = ["Body", "Head", "WireError", "chunk", "parse_head", "response_head"]

MAXIMUM_HEAD = 1024 * 1024
"""The limit of Go's server."""
MAXIMUM_CHUNK_LINE = 1024
_PATIENCE = 16
"""A body of up to this many times the limit is read to its end, so that its sender gets to the error."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"(?:https?://[^/?#]*)?(/[\x21-\x7e]*|\*)")
_HOST = re.compile(r"[A-Za-z0-9.:_~%!$&'()*+;=\[\]-]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LAST_CHUNK = b"0\r\n\r\n"


class WireError(Exception):
    """Malformed HTTP; the connection ends with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(msgspec.Struct, frozen=True, gc=False):
    """The first line and the headers of a request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Names in lower case. The values of a repeated header are joined."""
    keeps_alive: bool
    length: int
    """Bytes of the body; -1 if it comes in chunks."""
    is_old: bool = False
    """True for HTTP/1.0, which has no chunks."""

    @property
    def expects_continue(self) -> bool:
        """True if the client waits for `100 Continue` before it sends the body."""
        return "expect" in self.headers


def parse_head(data: bytes) -> Head:
    """Parse a head, without the empty line that ends it. Raises WireError for a malformed one."""
    first, _, rest = data.partition(b"\r\n")
    parts = first.decode("latin-1").split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]):
        raise WireError(400, "malformed request line")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise WireError(505 if version.startswith("HTTP/") else 400, "only HTTP/1.1 is supported")
    matched = _TARGET.fullmatch(target)
    if matched is None:
        raise WireError(400, "malformed request target")
    path, _, query = matched[1].partition("#")[0].partition("?")
    if "%" in path and _BAD_ESCAPE.search(path):
        raise WireError(400, "malformed escape in the request target")
    headers = _headers(rest)
    old = version == "HTTP/1.0"
    if not old and "host" not in headers:
        raise WireError(400, "missing required Host header")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise WireError(417, "only the expectation 100-continue is supported")
    connection = headers.get("connection", "").lower()
    keeps_alive = "keep-alive" in connection if old else "close" not in connection
    return Head(method, path, query, headers, keeps_alive, _length(headers), old)


@lru_cache(maxsize=256)
def _headers(data: bytes) -> Mapping[str, str]:
    """Parse headers. The result is cached: a client sends the same headers with each request."""
    headers: dict[str, str] = {}
    # Headers have no particular encoding; latin-1 preserves every byte.
    for line in data.decode("latin-1").split("\r\n") if data else ():
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or _FORBIDDEN.search(value):
            raise WireError(400, "malformed header")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name == "content-length" and headers[name] != value:
                raise WireError(400, "the content-length headers differ")
            if name != "content-length":
                # The name of a group may contain a comma, but never a line feed.
                between = HEADER_SEPARATOR if name.startswith("impersonate-") else ", "
                value = f"{headers[name]}{between}{value}"
        headers[name] = value
    if not _HOST.fullmatch(headers.get("host", "")):
        raise WireError(400, "malformed Host header")
    return headers


def _length(headers: Mapping[str, str]) -> int:
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        # Two definitions of where a body ends allow request smuggling.
        if length is not None:
            raise WireError(400, "content-length and transfer-encoding exclude each other")
        if encoding.lower() != "chunked":
            raise WireError(501, "only the transfer encoding chunked is supported")
        return -1
    if length is None:
        return 0
    if not length.isascii() or not length.isdigit() or len(length) > 18:
        raise WireError(400, "malformed content-length")
    return int(length)


class Body:
    """A request body that is still arriving.

    Bytes over the limit are read and dropped, so that the client gets to the error.
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
        """Consume the body's part of `data` and return the rest, which belongs to the next request.

        Raises WireError for malformed chunks.
        """
        at = 0
        while at < len(data) and not self.done:
            at = self._read_line_at(data, at) if self._chunked and self._left <= 0 else self._take(data, at)
        return data[at:]

    def _take(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._left]
        self._left -= len(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self.too_large = True
            self._pieces.clear()
            if self._size > self._limit * _PATIENCE:
                raise WireError(413, f"the body is larger than {self._limit} bytes")
        elif not self.too_large:
            self._pieces.append(piece)
        if self._left == 0 and not self._chunked:
            self.done = True
        return at + len(piece)

    def _read_line_at(self, data: bytes, at: int) -> int:
        """Read one line between chunks: a size, the end of a chunk, or a trailer."""
        end = data.find(b"\n", at)
        self._line += data[at:] if end < 0 else data[at : end + 1]
        if len(self._line) > MAXIMUM_CHUNK_LINE:
            raise WireError(400, "malformed chunk")
        if end < 0:
            return len(data)
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise WireError(400, "malformed chunk")
        self._read_line(line[:-2])
        return end + 1

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
        """The body."""
        return b"".join(self._pieces)


def response_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Return the head of a response, with the empty line that ends it."""
    if _FORBIDDEN.search("".join([value for _, value in headers])):
        headers = [(name, _FORBIDDEN.sub(" ", value)) for name, value in headers]
    lines = [_status_line(status), *[f"{name}: {value}\r\n" for name, value in headers], "\r\n"]
    return "".join(lines).encode("utf-8", "replace")


_STATUS_LINES: dict[int, str] = {}


def _status_line(status: int) -> str:
    line = _STATUS_LINES.get(status)
    if line is None:
        is_standard = status in HTTPStatus._value2member_map_
        phrase = HTTPStatus(status).phrase if is_standard else "Unknown"
        line = _STATUS_LINES[status] = f"HTTP/1.1 {status} {phrase}\r\n"
    return line


def chunk(data: bytes) -> bytes:
    """Return a chunk of a body; empty data makes the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else _LAST_CHUNK

"""The watch stream: chunks of bytes become typed events."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from kapsa.runtime.errors import ApiStatus, ResponseTooLarge, TransportError, error_from_status

__all__ = ["Bookmark", "WatchEvent", "split_lines"]

T = TypeVar("T")
Lines: TypeAlias = list[bytes]

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """An object was added, modified or deleted. A DELETED event carries the object's last state."""

    type: EventType
    object: T


class Bookmark(msgspec.Struct, frozen=True):
    """All changes up to this resourceVersion were delivered: a watch that resumes from it misses none."""

    resource_version: str
    initial_events_end: bool = False
    """True for the one bookmark that ends the initial events of a streaming list."""


class Envelope(msgspec.Struct, frozen=True):
    """A line of a watch, with the object not yet decoded, because its form depends on the type."""

    type: str
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct, frozen=True):
    metadata: _BookmarkMetadata


decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_bookmark = msgspec.json.Decoder(_BookmarkObject).decode
_decode_status = msgspec.json.Decoder(ApiStatus).decode


def bookmark(raw: msgspec.Raw) -> Bookmark:
    """Return the bookmark of a BOOKMARK event."""
    metadata = _decode_bookmark(raw).metadata
    ended = (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"
    return Bookmark(metadata.resource_version, initial_events_end=ended)


def watch_error(raw: msgspec.Raw, action: str) -> Exception:
    """Return the typed error of an ERROR event."""
    return error_from_status(_decode_status(raw), action=action)


async def split_lines(
    chunks: AsyncIterable[bytes], *, limit: int = 64 * 1024 * 1024, last_line_may_be_open: bool = False
) -> AsyncIterator[Lines]:
    """Yield complete lines, in batches as they arrive, without empty ones.

    A line may span any number of chunks: an object of several megabytes arrives in chunks of some kilobytes,
    and joining them once keeps the cost linear. A stream that ends within a line was broken off, unless
    `last_line_may_be_open`.
    """
    pending: list[bytes] = []
    size = 0
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        if first:
            pending.append(first)
            size += len(first)
            if size > limit:
                raise ResponseTooLarge(f"a line of the stream is longer than {limit} bytes")
        if not rest:
            continue
        *whole, last = rest
        lines = [b"".join(pending), *whole] if pending else whole
        pending = [last] if last else []
        size = len(last)
        if lines := [line for line in lines if line]:
            yield lines
    if pending:
        if last_line_may_be_open:
            yield [b"".join(pending)]
            return
        raise TransportError("the stream broke off in the middle of a line")

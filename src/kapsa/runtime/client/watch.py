"""The watch stream: bytes cut anywhere become typed events."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from kapsa.runtime.errors import ApiStatus, ResponseTooLarge, TransportError, error_from_status

__all__ = ["Bookmark", "WatchEvent", "split_lines"]

T = TypeVar("T")
Lines: TypeAlias = list[bytes]

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One object came, changed, or went. A DELETED event carries the object's last state."""

    type: EventType
    object: T


class Bookmark(msgspec.Struct, frozen=True):
    """Nothing changed up to this resourceVersion: a watch resumed from here misses nothing."""

    resource_version: str
    initial_events_end: bool = False
    """True for the one bookmark that ends the initial events of a streaming list."""


class Envelope(msgspec.Struct, frozen=True):
    """A line of a watch with the object not yet decoded: what it is depends on the type."""

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
    """The bookmark in a BOOKMARK event."""
    metadata = _decode_bookmark(raw).metadata
    ended = (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"
    return Bookmark(metadata.resource_version, initial_events_end=ended)


def watch_error(raw: msgspec.Raw, action: str) -> Exception:
    """The typed error in an ERROR event."""
    return error_from_status(_decode_status(raw), action=action)


async def split_lines(
    chunks: AsyncIterable[bytes], *, limit: int = 64 * 1024 * 1024, last_line_may_be_open: bool = False
) -> AsyncIterator[Lines]:
    """Whole lines, in batches as they complete. Empty lines are dropped.

    A line may span any number of chunks: an object of several megabytes arrives in pieces of some kilobytes,
    and joining once at its end keeps the cost linear. A stream that ends inside a line was cut, unless
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
        raise TransportError("the stream was cut in the middle of a line")

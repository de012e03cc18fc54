"""Watch events as the lines of JSON that a client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["encode_event", "error_event", "error_stream"]


def encode_event(kind: str, body: bytes) -> bytes:
    """Return one watch event as a line of JSON."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)


def error_event(error: StatusError) -> bytes:
    """Return the event that ends a watch with an error."""
    return encode_event("ERROR", msgspec.json.encode(error.status()))


async def error_stream(error: StatusError) -> AsyncIterator[bytes]:
    """Yield one ERROR event and end."""
    yield error_event(error)

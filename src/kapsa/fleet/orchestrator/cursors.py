"""Cursors of pages: the key of the last item, opaque to clients."""

import base64
import binascii
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.orchestrator.pages import Page

__all__ = [
    "DEFAULT_LIMIT",
    "LARGEST_LIMIT",
    "check_limit",
    "decode_cursor",
    "decode_position",
    "encode_cursor",
    "page_of",
]

DEFAULT_LIMIT, LARGEST_LIMIT = 50, 200
_LONGEST = 1024

Item = TypeVar("Item")


def encode_cursor(*key: str) -> str:
    """Return the cursor after the item with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str, size: int) -> tuple[str, ...] | None:
    """Return the key in a cursor, or None for the first page.

    Raises InvalidInput if the cursor is not one of this list.
    """
    if not cursor:
        return None
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = msgspec.json.decode(packed, type=tuple[str, ...]) if len(cursor) <= _LONGEST else ()
    except (binascii.Error, msgspec.DecodeError, ValueError):
        key = ()
    # PostgreSQL stores no text with U+0000, so no cursor of ours has it.
    if len(key) != size or any("\0" in part for part in key):
        raise _not_of_this_list()
    return key


def decode_position(cursor: str) -> tuple[datetime, uuid.UUID] | None:
    """Return the time and id in a cursor of a list that is ordered by time, or None for the first page.

    Raises InvalidInput if the cursor is not one of such a list.
    """
    key = decode_cursor(cursor, 2)
    if key is None:
        return None
    try:
        moment, item = datetime.fromisoformat(key[0]), uuid.UUID(key[1])
    except ValueError:
        raise _not_of_this_list() from None
    if moment.tzinfo is None:
        raise _not_of_this_list()
    return moment, item


def _not_of_this_list() -> InvalidInput:
    message = "is not a cursor of this list: use nextCursor of the page before, or leave it out"
    return InvalidInput(f"cursor {message}", InvalidField("/cursor", message))


def check_limit(limit: int) -> int:
    """Return the limit.

    Raises InvalidInput if it is out of range.
    """
    if not 1 <= limit <= LARGEST_LIMIT:
        message = f"must be between 1 and {LARGEST_LIMIT}, got {limit}"
        raise InvalidInput(f"limit {message}", InvalidField("/limit", message))
    return limit


def page_of(items: Sequence[Item], limit: int, key: Callable[[Item], tuple[str, ...]]) -> Page[Item]:
    """Return a page of at most `limit` items; the repository has read one more, if there is one."""
    shown = tuple(items[:limit])
    return Page(shown, encode_cursor(*key(shown[-1])) if len(items) > limit else "")

"""Pages of a list: a slice, and the cursor of the next."""

from typing import Generic, TypeVar

import msgspec

__all__ = ["Page"]

Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item], frozen=True, rename="camel"):
    """A slice of a list."""

    items: tuple[Item, ...]
    next_cursor: str = ""
    """Opaque; empty on the last page."""

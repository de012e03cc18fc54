"""A list of objects, or one page of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

__all__ = ["ResourceList"]

T = TypeVar("T")


class ResourceList(msgspec.Struct, Generic[T], frozen=True):
    """Objects of one kind as of one resourceVersion: a whole list, or a page of it."""

    items: Sequence[T] = ()
    resource_version: str = ""
    continue_token: str = ""
    """The start of the next page; empty on the last one."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

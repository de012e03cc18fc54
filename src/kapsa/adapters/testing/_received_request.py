"""A request as a test server received it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["ReceivedRequest"]


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request that a server received."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Header values by name, in lower case."""

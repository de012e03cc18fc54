"""Custom kinds on a cluster: when they can be used, and whether a write is accepted."""

from __future__ import annotations

from collections.abc import Awaitable

from kapsa.runtime import ApiError, Client, Invalid, UnknownKind

__all__ = ["accepted", "served"]


async def served(client: Client, kind: str) -> bool:
    """Return whether the cluster serves a kind."""
    try:
        await client.list(kind)
    except (ApiError, UnknownKind):
        return False
    return True


async def accepted(call: Awaitable[object]) -> bool:
    """Return whether the API server finds nothing invalid in a write."""
    try:
        await call
    except Invalid:
        return False
    return True

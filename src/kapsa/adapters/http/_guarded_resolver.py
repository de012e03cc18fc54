"""Name resolution with a check of each address, since a name can resolve to any address."""

from __future__ import annotations

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from kapsa.runtime import AddressGuard

__all__ = ["GuardedResolver"]


class GuardedResolver(AbstractResolver):
    """A resolver that passes each address to the guard before a connection.

    An IP address in a URL is never resolved: the caller must check it.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host, port, family)
        for result in addresses:
            self._guard(result["host"])
        return addresses

    async def close(self) -> None:
        await self._resolver.close()

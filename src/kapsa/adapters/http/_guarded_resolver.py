"""Name resolution under guard: a name that we were given may lead anywhere, and elsewhere the next time."""

from __future__ import annotations

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from kapsa.runtime import AddressGuard

__all__ = ["GuardedResolver"]


class GuardedResolver(AbstractResolver):
    """Resolves names, and lets the guard judge every address before a connection goes there.

    An address in a URL itself never gets to a resolver: that is for the caller to judge.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            self._guard(result["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()

"""The sockets that a client opens, so that closing it leaves none of them open.

A TLS connection that is given up (a watch that ends, a request that is cancelled) says goodbye to the server and waits
for its answer; aiohttp has forgotten it by then, and closing the session does not wait for it.
"""

import asyncio
import contextlib
import socket
import weakref

from aiohttp import AddrInfoType

__all__ = ["Sockets"]

_ROUNDS = 100
"""More than enough turns of the loop to notice the end of a connection that was shut down on our side."""


class Sockets:
    """Makes sockets for aiohttp's connectors and remembers those that are open."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def __call__(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def close(self) -> None:
        """End what is still open; returns once the loop has let go of it."""
        for each in self._still_open():
            with contextlib.suppress(OSError):  # not connected any more
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_ROUNDS):
            if not self._still_open():
                return
            await asyncio.sleep(0)

    def _still_open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() != -1]

"""The turn: how long runs that await nothing may hold the event loop, all controllers of a process together."""

from __future__ import annotations

import asyncio

__all__ = ["Turn"]

_SECONDS = 0.01


class Turn:
    """The current turn of the workers that share an event loop.

    A run of a converged resource awaits nothing, and neither does taking a waiting key: without turns, a start-up list of
    thousands would hold the loop until its end, and with a turn for each controller, hundreds of them would add up.
    """

    def __init__(self) -> None:
        self.ends = 0.0
        """The time of the event loop at which the workers let others run."""
        self._number = 0

    async def wait(self) -> None:
        """Wait for a turn that has not ended."""
        while asyncio.get_running_loop().time() >= self.ends:
            await self.next()

    async def next(self) -> None:
        """Let the event loop serve probes, the lease and signals, although keys are waiting.

        The first worker that goes on when the loop comes round begins the next turn.
        """
        number = self._number
        await asyncio.sleep(0)
        if self._number == number:
            self._number += 1
            self.ends = asyncio.get_running_loop().time() + _SECONDS

"""Time, handed in: everything in the runtime that waits or tells time asks a `Clock`.

A test passes a virtual clock and runs hours in milliseconds; production passes `SystemClock`.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the runtime needs to know about time."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary point that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

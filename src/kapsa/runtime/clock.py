"""The clock that the runtime waits on and reads the time from.

A test passes a virtual clock and runs hours in milliseconds; production passes `SystemClock`.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point; they never decrease."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock."""
        ...


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine is suspended, where there is one: a lease expires meanwhile for all others."""


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

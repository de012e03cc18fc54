"""Clocks for the devcluster: the host's, and a virtual one that jumps to the next timer.

On a `VirtualTimeLoop` an hour of `asyncio.sleep` passes as soon as nothing else is ready to run, so timers,
timeouts and delays are virtual without any change to the code that uses them. Wall times come from a
`VirtualClock`, whose seconds are the loop's.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

__all__ = ["ClusterClock", "HostClock", "VirtualClock", "VirtualTimeLoop", "run_on_virtual_time"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEADLOCK_SECONDS = 5.0
"""Real seconds that a virtual loop waits for a thread or a signal if no task can run and no timer is set."""


class ClusterClock(Protocol):
    """A source of time, so that a test can replace it."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point; they never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""
        ...


class HostClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's wall time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic time."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)


class VirtualClock:
    """Wall time that follows the running loop's time from an epoch on, at a rate of its own.

    Two clocks of different rates in one loop are two machines whose clocks drift apart.
    """

    def __init__(self, epoch: datetime = datetime(2026, 1, 1, tzinfo=UTC), rate: float = 1.0) -> None:
        if rate <= 0:
            raise ValueError(f"the rate of a clock must be positive, got {rate}")
        self.epoch = epoch
        self.rate = rate
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> datetime:
        """Return the epoch plus the time that the loop has run."""
        return self.epoch + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the loop's time at this clock's rate."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            # Called from outside a coroutine: the last loop still has its time.
            if self._loop is None:
                return 0.0
        return self._loop.time() * self.rate

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock; on a virtual loop that takes no real time."""
        await asyncio.sleep(seconds / self.rate)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything can run, and jumps to the next timer otherwise.

    Time does not move while a call in an executor is pending, since that call takes real time. Sockets are
    polled but never waited for: use transports without sockets.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._pending_calls = 0
        super().__init__(_JumpingSelector(self))
        # Coarse enough that a large time plus a timeout never rounds to just before the timer.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        """Advance time at once, without waiting for the loop to be idle."""
        self._virtual_now += seconds

    @property
    def awaits_real_time(self) -> bool:
        """True if a call in an executor is still running."""
        return self._pending_calls > 0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call `func` in a thread. Virtual time stands still until it has returned."""
        future = super().run_in_executor(executor, func, *args)
        self._pending_calls += 1
        future.add_done_callback(self._call_finished)
        return future

    def _call_finished(self, _: asyncio.Future[Any]) -> None:
        self._pending_calls -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that polls instead of waiting, and advances its loop's time by the length of the wait."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        ready = super().select(0)
        if ready:
            return ready
        if self._loop.awaits_real_time:
            return super().select(DEADLOCK_SECONDS)
        if timeout is None:
            ready = super().select(DEADLOCK_SECONDS)
            if not ready:
                raise RuntimeError(
                    "deadlock in virtual time: every task waits, and no timer is set; "
                    "look for a future, event or queue that nothing will set or fill"
                )
            return ready
        self._loop.advance(timeout)
        return []


def run_on_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

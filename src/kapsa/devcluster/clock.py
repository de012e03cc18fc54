"""Time for the devcluster: the system's clock, and a virtual one that jumps to the next timer.

On a :class:`VirtualTimeLoop` an hour of ``asyncio.sleep`` passes as soon as nothing else is ready to run, so
ordinary timers, timeouts and delays are virtual without any change to the code that uses them. Wall times come
from a :class:`VirtualClock`, whose seconds are the loop's.
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
"""Real seconds a virtual loop waits for a thread or a signal when no task can run and no timer is set."""


class ClusterClock(Protocol):
    """Where a component reads the time, so that a test can hand it another."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary point that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""
        ...


class HostClock:
    """The machine's own time."""

    def now(self) -> datetime:
        """The machine's wall time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The machine's monotonic time."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await asyncio.sleep(seconds)


class VirtualClock:
    """Wall time that follows the running loop's time from an epoch on, at a rate of its own.

    Two clocks of different rates in one loop are two machines whose clocks drift apart.
    """

    def __init__(self, epoch: datetime = datetime(2026, 1, 1, tzinfo=UTC), rate: float = 1.0) -> None:
        if rate <= 0:
            raise ValueError(f"a clock's rate must be positive, not {rate}")
        self.epoch = epoch
        self.rate = rate
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> datetime:
        """The epoch and what has passed since the loop began."""
        return self.epoch + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """The loop's time, at this clock's rate."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            # Asked from outside a coroutine: the loop that was last seen still knows its time.
            if self._loop is None:
                return 0.0
        return self._loop.time() * self.rate

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock: no real time, on a virtual loop."""
        await asyncio.sleep(seconds / self.rate)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything can run, and jumps to the next timer otherwise.

    Time does not move while a call in an executor is pending, since that call takes real time. Sockets are polled
    but never waited for: use transports without sockets.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._pending_calls = 0
        super().__init__(_JumpingSelector(self))
        # Coarse enough that adding a timeout to a large time never falls short of the timer by rounding.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        """Move time on by hand, without waiting for the loop to be idle."""
        self._virtual_now += seconds

    @property
    def awaits_real_time(self) -> bool:
        """Whether a call in an executor is still running."""
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
    """Polls instead of waiting, and moves its loop's time by what the wait would have been."""

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
                    "deadlock in virtual time: every task waits for something, and no timer is set; "
                    "look for a future, event or queue that nobody will fill"
                )
            return ready
        self._loop.advance(timeout)
        return []


def run_on_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as ``asyncio.run`` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

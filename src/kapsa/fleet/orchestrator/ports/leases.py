"""Leases: the right to change a cluster, held for a time, and checked before each write."""

# ruff: noqa: N818 - the names say what happened

import time
from collections.abc import Callable

__all__ = ["HolderClock", "LeaseError", "LeaseGuard", "LeaseLost", "elapsed_seconds"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_seconds() -> float:
    """Return the seconds of a clock that never goes back, and that runs on while the machine is suspended.

    `time.monotonic` stops then on Linux: a manager that wakes up would take a lease for its own that others have seen
    lapse long ago.
    """
    return time.clock_gettime(_CLOCK)


class HolderClock:
    """A clock for the holder of a lease, which also counts a time in which the whole machine stood still.

    A virtual machine that is paused, for a snapshot or a move, stops with all its own clocks. Afterwards its time of day
    is set right, by NTP or an agent: a jump of it against the other clock counts as elapsed. If it was a correction
    instead, a lease ends too early, which is safe for its holder. It is not for a replica that waits for another's lease.
    """

    def __init__(self, elapsed: Callable[[], float], time_of_day: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._time_of_day = time_of_day
        self._ahead = time_of_day() - elapsed()

    def __call__(self) -> float:
        """Return seconds that never go back."""
        elapsed = self._elapsed()
        self._ahead = max(self._ahead, self._time_of_day() - elapsed)
        return elapsed + self._ahead


class LeaseError(Exception):
    """The base of errors that end the work under a claim."""


class LeaseLost(LeaseError):
    """The lease has lapsed, or another replica has taken it: nothing may be written any more."""


class LeaseGuard:
    """The deadline of a lease on this machine's own clock, `elapsed_seconds`.

    It counts from before the database was asked, so that it always ends before the lease that others see. A process
    that slept past its lease finds out here, without asking anybody.
    """

    def __init__(self, deadline: float, monotonic: Callable[[], float]) -> None:
        self._deadline = deadline
        self._monotonic = monotonic

    @property
    def remaining(self) -> float:
        """The seconds left; negative after the deadline."""
        return self._deadline - self._monotonic()

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is still held."""
        if self.remaining <= 0:
            raise LeaseLost("the lease has lapsed: another replica may have taken over")

    def extend(self, deadline: float) -> None:
        """Move the deadline after a renewal."""
        self._deadline = deadline

    def revoke(self) -> None:
        """End the lease now: the database refused to renew it."""
        self._deadline = self._monotonic()

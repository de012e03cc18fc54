"""Leases of other replicas, watched on this process's own clock: only one that stands still may be taken.

The clock of the database decides nothing here. It may jump, and a lease that lapsed by it alone would have two
replicas run Helm on one cluster until the former holder notices.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta

from kapsa.fleet.orchestrator.ports.rollouts import HeldLease

__all__ = ["TakeoverWatch"]

_MARGIN = 1.05
"""Patience in lives of a lease: two machines' clocks do not run alike, and a last write needs time to end."""


class TakeoverWatch:
    """The moments since which leases have not been renewed.

    A holder counts from before its renewal, and this watch from after it has seen the renewal. So the holder has
    stopped by the time at which the watch calls its lease lapsed, whether or not it reaches the database.
    """

    def __init__(self, lease: timedelta, monotonic: Callable[[], float]) -> None:
        self._patience = lease.total_seconds() * _MARGIN
        self._monotonic = monotonic
        self._since: dict[HeldLease, float] = {}

    def lapsed(self, held: Iterable[HeldLease]) -> list[HeldLease]:
        """Return the leases that may be taken, of all that are held as this process sees them now."""
        now = self._monotonic()
        self._since = {each: self._since.get(each, now) for each in held}
        return [each for each, since in self._since.items() if now - since >= self._patience]

    def remaining(self, lease: HeldLease) -> timedelta:
        """Return the time until a lease may be taken, if nobody renews it."""
        now = self._monotonic()
        left = self._since.get(lease, now) + self._patience - now
        return timedelta(seconds=max(0.0, left))

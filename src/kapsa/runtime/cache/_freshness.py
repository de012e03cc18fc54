"""Freshness: whether the watches of a controller are recent enough to act on."""

from collections.abc import Sequence

import structlog

from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.clock import Clock

__all__ = ["Freshness"]

_log = structlog.get_logger(__name__)


class Freshness:
    """The limit on the age of a cache, for one controller. Without a limit the cache is always fresh."""

    def __init__(
        self, controller: str, informers: Sequence[Informer], *, limit: float | None, clock: Clock
    ) -> None:
        self._controller = controller
        self._informers = informers
        self._limit = limit
        self._clock = clock
        self._fresh_until = float("-inf") if limit is not None else float("inf")
        self._logged = False

    @property
    def stale(self) -> list[Informer]:
        """The watches that may have missed changes for longer than the limit."""
        if self._limit is None:
            return []
        return [each for each in self._informers if each.synced.is_set() and each.staleness > self._limit]

    def check(self) -> bool:
        """Return whether every watch is fresh. Log when that changes. Cheap: it looks only when one may be stale."""
        now = self._clock.monotonic()
        if now < self._fresh_until:
            return True
        stale = self.stale
        if stale:
            self._report(stale)
            return False
        assert self._limit is not None
        oldest = max((informer.staleness for informer in self._informers), default=0.0)
        self._fresh_until = now + max(0.0, self._limit - oldest)
        if self._logged:
            self._logged = False
            _log.info("watches are fresh again, the controller goes on", controller=self._controller)
        return True

    def recheck(self) -> None:
        """Look at every watch in the next check: there may be one more."""
        if self._limit is not None:
            self._fresh_until = float("-inf")

    def _report(self, stale: list[Informer]) -> None:
        if self._logged:
            return
        self._logged = True
        _log.error(
            "cache is too old to act on, the controller waits",
            controller=self._controller,
            max_staleness=self._limit,
            watches=[f"{informer.scope}: {informer.describe()}" for informer in stale],
        )

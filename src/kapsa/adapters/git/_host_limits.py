"""Git servers: each is asked by a few at a time, and left alone for a while once it says that it is asked too much.

Servers count requests by address where nobody logs in, and by login otherwise. So does the back-off: one tenant who has used
up a token keeps no other tenant from the same server.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import weakref
from collections.abc import AsyncIterator, Callable

import msgspec

from kapsa.adapters.errors import Unreachable
from kapsa.adapters.git.credentials import GitCredentials

__all__ = ["RATE_LIMITED", "HostLimits"]

RATE_LIMITED = "RateLimited"
"""The reason of servers that are asked too much."""
_FIRST = 60.0
_LONGEST = 960.0
_KEPT = 10_000


class _Quiet(msgspec.Struct, frozen=True):
    """A server that is left alone."""

    until: float
    seconds: float
    """How long this time: the next time is twice as long."""


class HostLimits:
    """Who asks which server, and when not."""

    def __init__(self, concurrency: int, *, now: Callable[[], float] | None = None) -> None:
        self._concurrency = concurrency
        self._now = now
        self._at_once: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self._quiet: dict[tuple[str, str], _Quiet] = {}

    @contextlib.asynccontextmanager
    async def asking(self, host: str, credentials: GitCredentials | None) -> AsyncIterator[None]:
        """One request to a server. An `Unreachable` of reason `RATE_LIMITED` in the block has it left alone for a while.

        :raises Unreachable: it is left alone at present; `retry_after` says how long.
        """
        who = host, _identity(credentials)
        async with self._at_once.setdefault(host, asyncio.Semaphore(self._concurrency)):
            self._keep_quiet(who)
            try:
                yield
            except Unreachable as error:
                if error.reason == RATE_LIMITED:
                    error.retry_after = self._begin_quiet(who)
                raise
            self._quiet.pop(who, None)

    def _keep_quiet(self, who: tuple[str, str]) -> None:
        known = self._quiet.get(who)
        left = known.until - self._time() if known is not None else 0.0
        if left > 0:
            raise Unreachable(
                f"{who[0]} said that it is asked too much, and is left alone for {left:.0f} s",
                reason=RATE_LIMITED,
                retry_after=left,
            )

    def _begin_quiet(self, who: tuple[str, str]) -> float:
        known = self._quiet.pop(who, None)
        seconds = min(2 * known.seconds, _LONGEST) if known is not None else _FIRST
        if len(self._quiet) >= _KEPT:
            del self._quiet[next(iter(self._quiet))]
        self._quiet[who] = _Quiet(self._time() + seconds, seconds)
        return seconds

    def _time(self) -> float:
        return self._now() if self._now is not None else asyncio.get_running_loop().time()


def _identity(credentials: GitCredentials | None) -> str:
    """Stands for a login, without holding it."""
    return hashlib.sha256(msgspec.json.encode(credentials)).hexdigest() if credentials is not None else ""

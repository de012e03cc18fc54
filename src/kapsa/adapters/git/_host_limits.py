"""Limits on requests to git servers: a few at a time for each host, and a back-off when rate-limited.

Servers count anonymous requests by address, and others by login. So does the back-off: a tenant that exhausts
its token does not block another tenant from the same server.
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
"""The reason of an error for a server that limits the rate of requests."""
_FIRST = 60.0
_LONGEST = 960.0
_KEPT = 10_000


class _Backoff(msgspec.Struct, frozen=True):
    """A pause in requests to a server."""

    until: float
    seconds: float
    """The length of the pause. The next one is twice as long."""


class HostLimits:
    """Limits on concurrent requests to each host, and its back-off."""

    def __init__(self, concurrency: int, *, now: Callable[[], float] | None = None) -> None:
        self._concurrency = concurrency
        self._now = now
        self._slots: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self._backoffs: dict[tuple[str, str], _Backoff] = {}

    @contextlib.asynccontextmanager
    async def request(self, host: str, credentials: GitCredentials | None) -> AsyncIterator[None]:
        """Run the block as one request to a host.

        An `Unreachable` with reason `RATE_LIMITED` in it starts a back-off.

        Raises `Unreachable` with `retry_after` during a back-off.
        """
        client = host, _identity(credentials)
        async with self._slots.setdefault(host, asyncio.Semaphore(self._concurrency)):
            self._check(client)
            try:
                yield
            except Unreachable as error:
                if error.reason == RATE_LIMITED:
                    error.retry_after = self._back_off(client)
                raise
            self._backoffs.pop(client, None)

    def _check(self, client: tuple[str, str]) -> None:
        backoff = self._backoffs.get(client)
        left = backoff.until - self._time() if backoff is not None else 0.0
        if left > 0:
            raise Unreachable(
                f"{client[0]} limits the rate of requests; the next one is sent in {left:.0f} s",
                reason=RATE_LIMITED,
                retry_after=left,
            )

    def _back_off(self, client: tuple[str, str]) -> float:
        previous = self._backoffs.pop(client, None)
        seconds = min(2 * previous.seconds, _LONGEST) if previous is not None else _FIRST
        if len(self._backoffs) >= _KEPT:
            del self._backoffs[next(iter(self._backoffs))]
        self._backoffs[client] = _Backoff(self._time() + seconds, seconds)
        return seconds

    def _time(self) -> float:
        return self._now() if self._now is not None else asyncio.get_running_loop().time()


def _identity(credentials: GitCredentials | None) -> str:
    """Return a digest of the credentials."""
    return hashlib.sha256(msgspec.json.encode(credentials)).hexdigest() if credentials is not None else ""

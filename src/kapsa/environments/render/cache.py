"""A cache of rendered objects, keyed by all inputs of the rendering.

Refusals are cached for a while, too: a rendering that times out would otherwise take as long at each retry.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError, Refused, TimedOut
from kapsa.environments.ports import Rendered
from kapsa.runtime import Clock, SystemClock

__all__ = ["RenderCache"]

_MOST_REFUSALS = 1000
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode


class RenderCache:
    """The most recently used results, encoded, so that callers do not share mutable objects."""

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        refusal_seconds: float = 300.0,
        clock: Clock | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._refusal_seconds = refusal_seconds
        self._clock = clock or SystemClock()
        self._results: dict[str, bytes] = {}
        self._bytes = 0
        self._refusals: dict[str, tuple[float, ExternalError]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @staticmethod
    def key(*parts: Any) -> str:
        """Return the key for the inputs of a rendering."""
        return hashlib.sha256(_encode(parts)).hexdigest()

    async def get(self, key: str, make: Callable[[], Awaitable[Rendered]]) -> Rendered:
        """Return the result for a key, rendering it with `make` if it is not cached.

        Concurrent callers share one rendering.

        Raises the errors of `make`, and again for a while those that are refusals or timeouts.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._raise_refusal(key)
            encoded = self._results.pop(key, None)
            if encoded is None:
                encoded = _encode(await self._make(key, make))
                self._bytes += len(encoded)
            self._results[key] = encoded  # at the end: the most recently used
            self._evict()
        return msgspec.json.decode(encoded, type=Rendered)

    async def _make(self, key: str, make: Callable[[], Awaitable[Rendered]]) -> Rendered:
        try:
            return await make()
        except (Refused, TimedOut) as refusal:
            self._refusals[key] = self._clock.monotonic() + self._refusal_seconds, refusal
            if len(self._refusals) > _MOST_REFUSALS:
                del self._refusals[next(iter(self._refusals))]
            raise

    def _raise_refusal(self, key: str) -> None:
        if key not in self._refusals:
            return
        until, refusal = self._refusals[key]
        if self._clock.monotonic() < until:
            raise refusal.with_traceback(None)
        del self._refusals[key]

    def _evict(self) -> None:
        while self._bytes > self._max_bytes and self._results:
            self._bytes -= len(self._results.pop(next(iter(self._results))))

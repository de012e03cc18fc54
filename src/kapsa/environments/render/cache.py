"""What was rendered before: kept by everything that went in, so that nothing is rendered twice.

Refusals are kept, too, for a while: what takes all the time it is given would else take it again at every retry.
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
    """Holds the most recently used results, encoded: nobody can change what another one gets."""

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
        self._kept: dict[str, bytes] = {}
        self._bytes = 0
        self._refusals: dict[str, tuple[float, ExternalError]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @staticmethod
    def key(*parts: Any) -> str:
        """A name for everything that has a say in the result."""
        return hashlib.sha256(_encode(parts)).hexdigest()

    async def get(self, key: str, make: Callable[[], Awaitable[Rendered]]) -> Rendered:
        """The result for this key, made if it is not known; once, however many ask at a time.

        :raises ExternalError: whatever `make` raises; a refusal or a timeout also if it was a short while ago.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._raise_refusal(key)
            kept = self._kept.pop(key, None)
            if kept is None:
                kept = _encode(await self._made(key, make))
                self._bytes += len(kept)
            self._kept[key] = kept  # at the end: it was used last
            self._drop()
        return msgspec.json.decode(kept, type=Rendered)

    async def _made(self, key: str, make: Callable[[], Awaitable[Rendered]]) -> Rendered:
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

    def _drop(self) -> None:
        while self._bytes > self._max_bytes and self._kept:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))))

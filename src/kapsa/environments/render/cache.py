"""What was rendered before: kept by everything that went in, so that nothing is rendered twice."""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kapsa.environments.render.inputs import Rendered

__all__ = ["RenderCache"]

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode


class RenderCache:
    """Holds the most recently used results, encoded: nobody can change what another one gets."""

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[str, bytes] = {}
        self._bytes = 0
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @staticmethod
    def key(*parts: Any) -> str:
        """A name for everything that has a say in the result."""
        return hashlib.sha256(_encode(parts)).hexdigest()

    async def get(self, key: str, make: Callable[[], Awaitable[Rendered]]) -> Rendered:
        """The result for this key, made if it is not known; once, however many ask at a time."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            kept = self._kept.pop(key, None)
            if kept is None:
                kept = _encode(await make())
                self._bytes += len(kept)
            self._kept[key] = kept  # at the end: it was used last
            self._drop()
        return msgspec.json.decode(kept, type=Rendered)

    def _drop(self) -> None:
        while self._bytes > self._max_bytes and self._kept:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))))

"""Watches that runs add: of kinds that are known only when a resource names them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.controller.declarations import Declared, Watch
from kapsa.runtime.controller.outcomes import TerminalError
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind

__all__ = ["RuntimeWatches", "WatchListener"]

_MOST = 100
"""Kinds that one controller may watch in addition: a tenant who invents names must not fill the memory."""
_SYNC_SECONDS = 30.0
"""The longest wait of a run for the first list. Then it fails, and is retried with back-off."""


class WatchListener(Protocol):
    """The part of a controller that changes of watched objects go to."""

    def handle(self, watch: Watch, informers: list[Informer]) -> None:
        """Map the changes of these informers to resources from now on."""

    def rely_on(self, informers: list[Informer]) -> None:
        """Count these informers, which have delivered their first list, to those that must be fresh."""


class RuntimeWatches:
    """The kinds that one controller watches in addition to those that it declares."""

    def __init__(self, declared: Declared, cache: Cache) -> None:
        self._declared = declared
        self._cache = cache
        self._informers: dict[GroupVersionKind, list[Informer]] = {}
        self._synced: set[GroupVersionKind] = set()
        self._since = float("-inf")
        self.listener: WatchListener | None = None

    def __contains__(self, gvk: GroupVersionKind) -> bool:
        return gvk in self._informers

    def begin(self, since: float) -> None:
        """Begin a tenure: a watch added in it must have delivered a list that was requested after this time.

        Other shards and controllers share the watch, which may have missed what the last leader of this one wrote.
        """
        self._since = since

    async def add(self, kind: Kind) -> None:
        """Watch a kind unless it is watched already, and wait until its objects can be read."""
        gvk = kind_of(kind)
        if gvk in self._synced or gvk in self._declared.trackable:
            return
        if gvk not in self._informers:
            self._start(gvk, kind)
        informers = self._informers[gvk]
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await self._wait_until_listed(informers)
        except TimeoutError:
            troubles = "; ".join(each.trouble or each.describe() for each in informers)
            raise RuntimeError(
                f"{gvk} has delivered no list within {_SYNC_SECONDS:g} s: {troubles}. Grant the operator get, list and "
                "watch on it"
            ) from None
        if gvk not in self._synced:
            self._synced.add(gvk)
            assert self.listener is not None
            self.listener.rely_on(informers)

    async def _wait_until_listed(self, informers: list[Informer]) -> None:
        since = self._since
        for informer in informers:
            informer.refresh(since)
        for informer in informers:
            await informer.synced.wait()
            await informer.wait_until_listed(since)

    def _start(self, gvk: GroupVersionKind, kind: Kind) -> None:
        if gvk in self._declared.scopes:
            raise TypeError(
                f"{self._declared.title} declares {gvk.kind} already: write Watch({str(gvk)!r}) in its watches"
            )
        if len(self._informers) >= _MOST:
            raise TerminalError(
                f"{gvk} is not watched: {_MOST} kinds are, which is the limit for one controller"
            )
        watch = Watch(kind, optional=True)
        informers = self._cache.watch(kind, optional=True)
        self._informers[gvk] = informers
        assert self.listener is not None
        self.listener.handle(watch, informers)

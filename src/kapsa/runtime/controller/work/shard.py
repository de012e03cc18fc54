"""Shards: the part of all keys that one replica works on, and the queue that takes no other key."""

from __future__ import annotations

import zlib
from collections.abc import Hashable

import msgspec

from kapsa.runtime.controller.work.workqueue import Backoff, Priority, QueueObserver, Reason, WorkQueue
from kapsa.runtime.resources.stored_object import Key

__all__ = ["Shard", "ShardQueue"]


class Shard(msgspec.Struct, frozen=True):
    """One of several equal parts of the keys of a cluster. Every process computes the same parts."""

    index: int
    count: int
    cluster: str = ""
    """The UID of a member cluster. A name would not do: replicas may see a new one at different times."""

    def __contains__(self, key: Key) -> bool:
        text = f"{self.cluster}/{key.namespace}/{key.name}"
        return zlib.crc32(text.encode()) % self.count == self.index


class ShardQueue(WorkQueue[Key]):
    """A queue that takes only the keys of one shard."""

    def __init__(self, shard: Shard, *, backoff: Backoff, observer: QueueObserver) -> None:
        super().__init__(backoff=backoff, observer=observer)
        self._shard = shard

    def add(
        self,
        key: Key,
        reason: Reason,
        *,
        priority: Priority = Priority.EVENT,
        change: Hashable | None = None,
    ) -> None:
        """Request a run if the key is one of the shard."""
        if key in self._shard:
            super().add(key, reason, priority=priority, change=change)

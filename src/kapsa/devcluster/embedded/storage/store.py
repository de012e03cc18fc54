"""Objects, their revisions, and the windows of changes that watches read.

An object is kept as the immutable JSON bytes it is served as. One counter numbers the changes of the whole store. The
changes of a resource go into an append-only window, and a watcher is a position in it: a slow watcher costs no memory,
and falls out of the window instead of filling a queue. Compaction moves the start of the window; earlier revisions
can no longer be listed or watched (410 Gone).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import msgspec

__all__ = [
    "ChangeJournal",
    "ChangeType",
    "Collection",
    "CollectionKey",
    "CompactedError",
    "FutureRevisionError",
    "ObjectStore",
    "StoreChange",
    "Stored",
]

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
CollectionKey = tuple[str, str]
"""Group and resource, as in ("apps", "deployments")."""


class CompactedError(Exception):
    """A request for a revision before the start of the window."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} has been compacted; the oldest kept is {oldest}")
        self.requested = requested
        self.oldest = oldest


class FutureRevisionError(Exception):
    """A request for a revision that the store has not reached."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is ahead of the current revision {current}")
        self.requested = requested
        self.current = current


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An object at one revision."""

    key: str
    """`namespace/name`, or `name` for a cluster-scoped object. Lists are ordered by it."""
    namespace: str
    name: str
    uid: str
    revision: int
    labels: dict[str, str]
    body: bytes
    """Canonical JSON: apiVersion, kind and metadata come first, in that order."""


class StoreChange(msgspec.Struct, gc=False):
    """One committed change of an object."""

    type: ChangeType
    revision: int
    object: Stored
    """The object after the change; for a deletion, its last state at the revision of the deletion."""
    previous: Stored | None
    frame: bytes = b""
    """The watch event as JSON, encoded by the first watcher that needs it and shared with the others."""


class ChangeJournal(Protocol):
    """A journal of each change, written before it takes effect. An exception prevents the change."""

    def put(self, key: CollectionKey, stored: Stored) -> None: ...

    def rewrite(self, key: CollectionKey, stored: Stored) -> None: ...

    def remove(self, key: CollectionKey, last: Stored) -> None: ...


class Collection:
    """All objects of one resource, and the window of their changes."""

    def __init__(self, key: CollectionKey, store: ObjectStore) -> None:
        self.key = key
        self._store = store
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._changes: list[StoreChange] = []
        self._dropped = 0
        self._window_bytes = 0
        self._compacted = store.restored_revision
        self._waiters: list[asyncio.Future[None]] = []
        self.watches = 0
        """Number of open watches."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Stored | None:
        """Return an object, or None."""
        return self._objects.get(key)

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be restored; 0 if nothing was compacted."""
        return self._compacted

    # Reading

    def keys(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Return the keys under a prefix in order, from `after` (inclusive) on."""
        keys = self._keys
        start = bisect_left(keys, max(prefix, after))
        end = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
        return iter(keys[start:end])

    def current(self, prefix: str = "", after: str = "") -> list[Stored]:
        """Return the current objects in key order."""
        if not prefix and not after:
            return [self._objects[key] for key in self._keys]
        return [self._objects[key] for key in self.keys(prefix, after)]

    def at(self, revision: int, prefix: str = "", after: str = "") -> list[Stored]:
        """Return the objects at a revision, restored by undoing the changes since.

        Raises CompactedError or FutureRevisionError when that is not possible.
        """
        self.check(revision)
        since = self._changes[self._index_after(revision) :]
        if not since:
            return self.current(prefix, after)
        objects = {key: self._objects[key] for key in self.keys(prefix, after)}
        start = max(prefix, after)
        for change in reversed(since):
            key = change.object.key
            if key < start or not key.startswith(prefix):
                continue
            if change.previous is None:
                objects.pop(key, None)
            else:
                objects[key] = change.previous
        return [objects[key] for key in sorted(objects)]

    def get_at(self, revision: int, key: str) -> Stored | None:
        """Return one object at a revision, or None. Raises as `at` does."""
        self.check(revision)
        for change in self._changes[self._index_after(revision) :]:
            if change.object.key == key:
                return change.previous
        return self._objects.get(key)

    def check(self, revision: int) -> None:
        """Raise CompactedError or FutureRevisionError unless the state at a revision can be restored."""
        if revision > self._store.revision:
            raise FutureRevisionError(revision, self._store.revision)
        if revision < self._compacted:
            raise CompactedError(revision, self._compacted)

    # Watching

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._dropped + len(self._changes)

    def position_after(self, revision: int) -> int:
        """Return the position of the first change after a revision. Raises CompactedError for a compacted one."""
        if revision < self._compacted:
            raise CompactedError(revision, self._compacted)
        return self._dropped + self._index_after(revision)

    def read(self, position: int) -> list[StoreChange]:
        """Return the changes from a position on. Raises CompactedError when it has left the window."""
        index = position - self._dropped
        if index < 0:
            raise CompactedError(self._compacted - 1, self._compacted)
        return self._changes[index:]

    def changed(self) -> asyncio.Future[None]:
        """Return a future that completes with the next change or compaction."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Discard a future of `changed` that is no longer awaited."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    # Writing

    def put(self, stored: Stored) -> StoreChange:
        """Add or replace an object. Its revision must be the store's next one."""
        if self._store.journal is not None:
            self._store.journal.put(self.key, stored)
        previous = self._objects.get(stored.key)
        if previous is None:
            insort(self._keys, stored.key)
        self._objects[stored.key] = stored
        return self._append(
            StoreChange("ADDED" if previous is None else "MODIFIED", stored.revision, stored, previous)
        )

    def rewrite(self, stored: Stored) -> None:
        """Replace the bytes of an object at its revision, without a change or an event."""
        if self._store.journal is not None:
            self._store.journal.rewrite(self.key, stored)
        self._objects[stored.key] = stored

    def remove(self, last: Stored) -> StoreChange:
        """Remove an object; `last` is its last state at the revision of the deletion."""
        if self._store.journal is not None:
            self._store.journal.remove(self.key, last)
        previous = self._objects.pop(last.key)
        del self._keys[bisect_left(self._keys, last.key)]
        return self._append(StoreChange("DELETED", last.revision, last, previous))

    # Loading: before the store is in use

    def load(self, stored: Stored) -> None:
        """Add or replace an object of an earlier process, without a change or an event."""
        # Its change has left the window: a reader that starts at the first position has to list.
        self._dropped += 1
        if stored.key not in self._objects:
            insort(self._keys, stored.key)
        self._objects[stored.key] = stored

    def unload(self, key: str) -> None:
        """Remove an object of an earlier process, without a change or an event."""
        del self._objects[key]
        del self._keys[bisect_left(self._keys, key)]

    def _append(self, change: StoreChange) -> StoreChange:
        self._store.commit(change.revision)
        self._changes.append(change)
        self._window_bytes += len(change.object.body)
        if len(self._changes) > self._store.window_changes or self._window_bytes > self._store.window_bytes:
            self._drop_oldest_quarter()
        self._wake()
        for listener in self._store.listeners:
            listener(self, change)
        return change

    def _drop_oldest_quarter(self) -> None:
        # A quarter at a time: moving the list is then rare.
        self._drop(max(1, len(self._changes) // 4))

    def _drop(self, count: int) -> None:
        gone = self._changes[:count]
        if not gone:
            return
        del self._changes[:count]
        self._dropped += count
        self._window_bytes -= sum(len(change.object.body) for change in gone)
        self._compacted = max(self._compacted, gone[-1].revision)

    def compact(self, revision: int) -> None:
        """Drop the changes up to and including a revision."""
        self._drop(self._index_after(revision))
        self._compacted = max(self._compacted, revision)
        self._wake()

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _index_after(self, revision: int) -> int:
        return bisect_right(self._changes, revision, key=_revision_of)


def _revision_of(change: StoreChange) -> int:
    return change.revision


class ObjectStore:
    """All collections, and the revision that they share."""

    def __init__(self, *, window_changes: int = 10_000, window_bytes: int = 64 * 1024 * 1024) -> None:
        self.revision = 1
        self.window_changes = window_changes
        self.window_bytes = window_bytes
        self.journal: ChangeJournal | None = None
        """Records each change before it takes effect; None if the state is in memory only."""
        self.restored_revision = 0
        """The revision at which an earlier process left the store; earlier ones are compacted."""
        self._collections: dict[CollectionKey, Collection] = {}
        self.listeners: list[Callable[[Collection, StoreChange], None]] = []
        """Called with each change as it is committed. A listener must be quick and must not write."""

    @property
    def next_revision(self) -> int:
        """Revision of the next change."""
        return self.revision + 1

    def collection(self, group: str, resource: str) -> Collection:
        """Return the collection of a resource, which is created if necessary."""
        key = (group, resource)
        collection = self._collections.get(key)
        if collection is None:
            collection = self._collections[key] = Collection(key, self)
        return collection

    def collections(self) -> list[Collection]:
        """Return all collections."""
        return list(self._collections.values())

    def restore(self, revision: int) -> None:
        """Continue at the revision of an earlier process, whose objects are loaded. Its history is gone."""
        self.revision = self.restored_revision = revision
        self.compact()

    def commit(self, revision: int) -> None:
        """Set the revision to that of a new change; called by the collection of the change."""
        if revision != self.revision + 1:
            raise RuntimeError(f"change carries revision {revision}, but the next one is {self.revision + 1}")
        self.revision = revision

    def compact(self, revision: int | None = None) -> None:
        """Drop the changes up to a revision (by default all), as etcd's compaction does."""
        upto = self.revision if revision is None else revision
        for collection in self._collections.values():
            collection.compact(upto)

    def drop(self, group: str, resource: str) -> None:
        """Drop a collection whose resource is no longer served."""
        self._collections.pop((group, resource), None)

"""Subscriptions: the objects that each resource tracks, so that a change of one runs exactly its readers.

They are kept in memory only: every resource runs when a controller starts, and subscribes again.
"""

from __future__ import annotations

from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import Key

__all__ = ["Subscriptions"]

_Target = tuple[GroupVersionKind, Key]


class Subscriptions:
    """The tracked reads of one controller's resources.

    A read subscribes at once, so that a change during the run is not lost. A completed run replaces the
    subscriptions of the runs before it: its outcome follows from what it read. A failed run adds its own to those
    of the last completed run, since it may have stopped before a read that would run the resource again; they
    replace those of the failed run before it.
    """

    def __init__(self) -> None:
        self._readers: dict[_Target, set[Key]] = {}
        self._completed: dict[Key, set[_Target]] = {}
        self._failed: dict[Key, set[_Target]] = {}
        self._running: dict[Key, set[_Target]] = {}

    def __len__(self) -> int:
        """Return the number of objects that have a subscriber."""
        return len(self._readers)

    def add(self, reader: Key, gvk: GroupVersionKind, key: Key) -> None:
        """Subscribe a resource to an object, whether that exists or not."""
        target = (gvk, key)
        self._running.setdefault(reader, set()).add(target)
        self._readers.setdefault(target, set()).add(reader)

    def readers(self, gvk: GroupVersionKind, key: Key) -> tuple[Key, ...]:
        """Return the resources that are subscribed to an object."""
        return tuple(self._readers.get((gvk, key), ())) if self._readers else ()

    def end_run(self, reader: Key, *, completed: bool) -> None:
        """Replace the subscriptions by those of the run if it completed, or add them if it failed."""
        fresh = self._running.pop(reader, None)
        if fresh is None and reader not in self._completed and reader not in self._failed:
            return
        fresh = fresh or set()
        kept = fresh if completed else fresh | self._completed.get(reader, set())
        self._remove(reader, self._failed.pop(reader, set()) - kept)
        if completed:
            self._remove(reader, self._completed.pop(reader, set()) - kept)
        if fresh:
            (self._completed if completed else self._failed)[reader] = fresh

    def drop(self, reader: Key) -> None:
        """Unsubscribe a resource that is gone."""
        self._remove(reader, self._running.pop(reader, set()))
        self._remove(reader, self._completed.pop(reader, set()))
        self._remove(reader, self._failed.pop(reader, set()))

    def clear(self) -> None:
        """Unsubscribe every resource."""
        self._readers.clear()
        self._completed.clear()
        self._failed.clear()
        self._running.clear()

    def _remove(self, reader: Key, targets: set[_Target]) -> None:
        for target in targets:
            readers = self._readers.get(target)
            if readers is not None:
                readers.discard(reader)
                if not readers:
                    del self._readers[target]

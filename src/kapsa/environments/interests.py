"""Interests: who depends on which object elsewhere, so that a change of it wakes exactly those.

An environment reads objects that know nothing of it: its Project, Secrets of its team, its Registry. Whatever a run looks
at is noted here first, there or not; a watch then maps a change back to the readers. It is memory only: every resource runs
when the operator starts, and notes everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kapsa.runtime import GroupVersionKind, Key, Kind, StoredObject, kind_of

__all__ = ["Interests"]

_Place = tuple[GroupVersionKind, Key]


class Interests:
    """What each reader reads."""

    def __init__(self) -> None:
        self._readers: dict[_Place, set[Key]] = {}
        self._read: dict[Key, set[_Place]] = {}

    def note(self, reader: Key, kind: Kind, name: str, *, namespace: str = "") -> None:
        """The reader depends on this object, or on its absence."""
        place = (kind_of(kind), Key(namespace, name))
        self._readers.setdefault(place, set()).add(reader)
        self._read.setdefault(reader, set()).add(place)

    def forget(self, reader: Key) -> None:
        """The reader is gone."""
        for place in self._read.pop(reader, ()):
            readers = self._readers[place]
            readers.discard(reader)
            if not readers:
                del self._readers[place]

    def readers(self, kind: Kind) -> Callable[[StoredObject], Iterable[Key]]:
        """For a Watch of this kind: the resources that a changed object concerns."""
        gvk = kind_of(kind)
        return lambda stored: tuple(self._readers.get((gvk, stored.key), ()))

    def who_reads(self, kind: Kind, name: str, *, namespace: str = "") -> Iterable[Key]:
        """The readers of one object."""
        return tuple(self._readers.get((kind_of(kind), Key(namespace, name)), ()))

    def __len__(self) -> int:
        return len(self._readers)

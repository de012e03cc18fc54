"""The store of one informer: the delivered objects, overlaid with our own writes, and their indexes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import structlog

from kapsa.runtime.cache.object_parser import key_and_version
from kapsa.runtime.resources.selector import LabelSelector, matcher
from kapsa.runtime.resources.stored_object import Change, Key, StoredObject, version_number

__all__ = ["Index", "Store", "by_label"]

_log = structlog.get_logger(__name__)

Index = Callable[[StoredObject], Iterable[Hashable]]
"""A function from an object to the values under which `Store.by_index` lists it."""


def _by_owner(stored: StoredObject) -> Iterable[Hashable]:
    return [owner.uid for owner in stored.owners]


def _by_namespace(stored: StoredObject) -> Iterable[Hashable]:
    return (stored.namespace,)


def by_label(name: str) -> Index:
    """Return an index by the value of one label."""

    def values(stored: StoredObject) -> Iterable[Hashable]:
        value = stored.labels.get(name)
        return () if value is None else (value,)

    return values


def _guarded(name: str, indexer: Index) -> Index:
    """Return an index that has an object under no value if the function fails, so that the watch goes on."""

    def values(stored: StoredObject) -> Iterable[Hashable]:
        try:
            return tuple(indexer(stored))
        except Exception as error:
            _log.error("object not indexed", index=name, object=str(stored.key), error=repr(error))
            return ()

    return values


class _Table:
    """One index: value to keys. Most values of an owner index have one key, which is stored without a set."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[Hashable, Key | set[Key]] = {}

    @classmethod
    def of(cls, indexer: Index, objects: dict[Key, StoredObject]) -> _Table:
        table = cls()
        for key, stored in objects.items():
            for value in indexer(stored):
                table.add(value, key)
        return table

    def keys(self, value: Hashable) -> Iterable[Key]:
        keys = self._keys.get(value)
        if keys is None:
            return ()
        return keys if isinstance(keys, set) else (keys,)

    def add(self, value: Hashable, key: Key) -> None:
        keys = self._keys.get(value)
        if keys is None or keys == key:
            self._keys[value] = key
        elif isinstance(keys, set):
            keys.add(key)
        else:
            self._keys[value] = {keys, key}

    def discard(self, value: Hashable, key: Key) -> None:
        keys = self._keys.get(value)
        if isinstance(keys, set):
            keys.discard(key)
            if keys:
                return
        elif keys != key:
            return
        del self._keys[value]


class Store:
    """The objects of one kind as the watch delivered them, overlaid with our writes until it delivers them.

    A read returns the newer of the two, so a reconcile always sees its own writes, deletes included. The
    store never goes back in time: an event older than the stored state is dropped. Only `replace`, a relist,
    may go back.
    """

    OWNER = "owner"
    NAMESPACE = "namespace"

    def __init__(self) -> None:
        self._objects: dict[Key, StoredObject] = {}
        self._written: dict[Key, StoredObject] = {}
        self._deleted: dict[Key, str] = {}
        self._delivered = -1
        """The version up to which the watch has delivered all changes."""
        self._indexers: dict[str, Index] = {self.OWNER: _by_owner, self.NAMESPACE: _by_namespace}
        self._given: dict[str, Index] = {}
        """The indexes of controllers, as declared."""
        self._indexes: dict[str, _Table] = {self.OWNER: _Table(), self.NAMESPACE: _Table()}

    # -- reading ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject]:
        if not self._written and not self._deleted:
            yield from list(self._objects.values())
            return
        for key in [*self._objects, *(key for key in self._written if key not in self._objects)]:
            stored = self.get(key)
            if stored is not None:
                yield stored

    def get(self, key: Key) -> StoredObject | None:
        """Return the newest state of one object; None if there is none, or we deleted it."""
        stored = self._objects.get(key)
        if self._written:
            written = self._written.get(key)
            if written is not None and (stored is None or written.version > stored.version):
                stored = written
        if self._deleted and stored is not None and self._deleted.get(key) == stored.uid:
            return None
        return stored

    def select(self, *, namespace: str = "", labels: LabelSelector = None) -> list[StoredObject]:
        """Return all objects, or those of a namespace, with these labels."""
        objects: Iterable[StoredObject] = self.by_index(self.NAMESPACE, namespace) if namespace else self
        matches = matcher(labels)
        return [each for each in objects if matches is None or matches(each.labels)]

    def by_index(self, index: str, value: Hashable) -> list[StoredObject]:
        """Return the objects that an index lists under this value."""
        indexer = self._indexers.get(index)
        if indexer is None:
            raise KeyError(f"index {index!r} is not declared; there are {', '.join(sorted(self._indexers))}")
        keys = self._indexes[index].keys(value)
        if not self._written and not self._deleted:
            return [self._objects[key] for key in keys]
        objects = []
        for key in {*keys, *self._written}:
            stored = self.get(key)
            if stored is not None and value in indexer(stored):
                objects.append(stored)
        return objects

    def has_index(self, index: str) -> bool:
        return index in self._indexers

    def owned_by(self, uid: str) -> list[StoredObject]:
        """Return the objects with an owner reference to this UID."""
        return self.by_index(self.OWNER, uid)

    def add_index(self, name: str, indexer: Index) -> None:
        """Add an index over all objects, present and future."""
        if name in self._indexers:
            if self._given.get(name) is not indexer:
                raise ValueError(f"index {name!r} is declared twice with different functions")
            return
        self._given[name] = indexer
        self._indexers[name] = guarded = _guarded(name, indexer)
        self._indexes[name] = _Table.of(guarded, self._objects)

    # -- the watch -------------------------------------------------------------------------------------------

    def replace(self, objects: Iterable[StoredObject], resource_version: str) -> list[Change]:
        """Replace all objects by a list and return the changes, deletes included. May go back in time."""
        fresh = {each.key: each for each in objects}
        changes = []
        for key, old in self._objects.items():
            new = fresh.get(key)
            if new == old:
                fresh[key] = old  # readers may hold it, and one copy is enough
                continue
            if new is None:
                changes.append(Change(old, None, initial=True))
            elif new.uid != old.uid:
                changes.append(Change(old, None, initial=True))
                changes.append(Change(None, new, initial=True))
            elif new.resource_version != old.resource_version:
                changes.append(Change(old, new, initial=True))
        changes.extend(
            Change(None, new, initial=True) for key, new in fresh.items() if key not in self._objects
        )
        self._objects = fresh
        self._deleted = {
            key: uid for key, uid in self._deleted.items() if key in fresh and fresh[key].uid == uid
        }
        self._rebuild_indexes()
        if 0 <= version_number(resource_version) < self._delivered:
            # The server has gone back, as after a restore of etcd: our later writes and deletes may be lost.
            self._written.clear()
            self._deleted.clear()
        self._delivered = -1
        self.caught_up(resource_version)
        return changes

    def upsert(self, new: StoredObject) -> list[Change]:
        """Process an ADDED or MODIFIED event and return its changes: none if it repeats an earlier event."""
        key = new.key
        old = self._objects.get(key)
        if self._is_repetition(new, old):
            return []
        self._put(key, old, new)
        self._delivered = max(self._delivered, new.version)
        if self._written:
            self._drop_written_until(key, new.version)
        if self._deleted and self._deleted.get(key, new.uid) != new.uid:
            del self._deleted[key]
        if old is not None and old.uid != new.uid:  # deleted and created again between two events
            return [Change(old, None), Change(None, new)]
        return [Change(old, new)]

    def remove(self, last: StoredObject) -> list[Change]:
        """Process a DELETED event, which has the object's last state, and return its changes."""
        key = last.key
        old = self._objects.get(key)
        self._delivered = max(self._delivered, last.version)
        if self._deleted.get(key) == last.uid:
            del self._deleted[key]
        if self._written:
            written = self._written.get(key)
            if written is not None and written.uid == last.uid:
                del self._written[key]
            self._drop_written_until(key, last.version)
        if old is None or (old.uid != last.uid and old.version > last.version):
            return []
        self._put(key, old, None)
        return [Change(last if old.uid == last.uid else old, None)]

    def caught_up(self, resource_version: str) -> None:
        """Record that the watch has delivered all changes up to this version, and drop our older writes."""
        reached = version_number(resource_version)
        self._delivered = max(self._delivered, reached)
        if self._written:
            self._written = {key: each for key, each in self._written.items() if each.version > reached}

    # -- our own writes --------------------------------------------------------------------------------------

    def note_write(self, written: StoredObject) -> StoredObject:
        """Record the response to a write: readers see it at once, unless the watch has delivered more.

        Return the object as readers get it if it still has this version, else as it was written.
        """
        current = self.get(written.key)
        if current is not None and current.uid == written.uid and current.version >= written.version:
            return current if current.resource_version == written.resource_version else written
        if written.version > self._delivered:
            self._written[written.key] = written
        return written

    def echo(self, raw: bytes) -> StoredObject | None:
        """Return our own write if the watch now delivers it, so that it is not parsed twice."""
        if not self._written:
            return None
        key, resource_version = key_and_version(raw)
        written = self._written.get(key)
        return written if written is not None and written.resource_version == resource_version else None

    def note_delete(self, key: Key, uid: str) -> None:
        """Record that the server has deleted an object: readers see it at once."""
        written = self._written.get(key)
        if written is not None and written.uid == uid:
            # Its ADDED may not have arrived yet; the entry is removed with its DELETED or the next list.
            del self._written[key]
            self._deleted[key] = uid
        stored = self._objects.get(key)
        if stored is not None and stored.uid == uid:
            self._deleted[key] = uid

    def delivered_object(self, key: Key) -> StoredObject | None:
        """Return an object as the watch delivered it last, without our own writes."""
        return self._objects.get(key)

    @property
    def delivered(self) -> int:
        """The version up to which the watch has delivered all changes; -1 before its first list."""
        return self._delivered

    @property
    def ahead(self) -> int:
        """The number of our own writes that the watch has not delivered yet."""
        return len(self._written) + len(self._deleted)

    # -- internals -------------------------------------------------------------------------------------------

    def _is_repetition(self, new: StoredObject, old: StoredObject | None) -> bool:
        """Return whether an event repeats an earlier one.

        A watch delivers changes in the order of their versions.
        """
        version = new.version
        if version < 0:  # not a number: only an exact repetition can be detected
            return old is not None and (old.uid, old.resource_version) == (new.uid, new.resource_version)
        return version <= self._delivered

    def _drop_written_until(self, key: Key, version: int) -> None:
        mine = self._written.get(key)
        if mine is not None and mine.version <= version:
            del self._written[key]
        # The watch delivers changes in order, so it has delivered our earlier writes too. Responses arrive
        # nearly in order: checking the oldest entries is enough. A straggler is harmless, since readers get the
        # newer state anyway.
        while self._written:
            oldest = next(iter(self._written))
            if self._written[oldest].version > version:
                break
            del self._written[oldest]

    def _put(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        for name, indexer in self._indexers.items():
            before = indexer(old) if old is not None else ()
            after = indexer(new) if new is not None else ()
            if before != after:
                table = self._indexes[name]
                for value in before:
                    table.discard(value, key)
                for value in after:
                    table.add(value, key)

    def _rebuild_indexes(self) -> None:
        self._indexes = {name: _Table.of(indexer, self._objects) for name, indexer in self._indexers.items()}

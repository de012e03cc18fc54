"""The store: what an informer knows of one kind, small in memory and quick to ask.

An object is kept as its own JSON, without managedFields, beside the few fields that lookup and ownership need.
Decoding happens on read, into a frozen struct or a dict, so ten thousand objects cost little more than their text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from kapsa.runtime.selector import LabelSelector, matcher

__all__ = [
    "Change",
    "Index",
    "Key",
    "ObjectParser",
    "OwnerReference",
    "Store",
    "StoredObject",
    "Transform",
    "by_label",
]

T = TypeVar("T")


class Key(NamedTuple):
    """Where an object lives: its namespace ("" for cluster-scoped kinds) and its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of metadata.ownerReferences, as far as ownership needs it."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        group, slash, _ = self.api_version.rpartition("/")
        return group if slash else ""


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object of the cache: typed metadata for lookup, everything as JSON."""

    key: Key
    uid: str
    resource_version: str
    raw: bytes
    """The whole object as JSON, without managedFields."""
    generation: int = 0
    labels: dict[str, str] = {}
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None
    owned_fields: bytes = b""
    """The fieldsV1 of the manager whose ownership the store follows (see `ObjectParser`)."""

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def version(self) -> int:
        """The resourceVersion as a number, to tell the older from the newer."""
        return version_number(self.resource_version)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    def annotations(self) -> dict[str, str]:
        """The annotations, read from the JSON: they are too large to keep twice."""
        return _ANNOTATED.decode(self.raw).metadata.annotations or {}

    def to_dict(self) -> dict[str, Any]:
        """A fresh dict of the whole object; change it as you like."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded

    def decode(self, into: type[T]) -> T:
        """The object as this type. Raises msgspec.ValidationError if it does not fit."""
        return msgspec.json.decode(self.raw, type=into)


class Change(msgspec.Struct, frozen=True, gc=False):
    """What happened to one object: it appeared (no old), changed, or went away (no new)."""

    old: StoredObject | None
    new: StoredObject | None
    initial: bool = False
    """Part of the first list, a relist or a resync, not of the live stream."""

    @property
    def object(self) -> StoredObject:
        """The newest known state."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def event(self) -> str:
        if self.new is None:
            return "Deleted"
        return "Added" if self.old is None else "Updated"


def version_number(resource_version: str) -> int:
    """A resourceVersion as a number; -1 for one that is none.

    Kubernetes promises since 1.35 that resource versions of one kind compare as whole numbers.
    """
    try:
        return int(resource_version)
    except ValueError:
        return -1


# -- reading what the server sends -----------------------------------------------------------------------------

Transform = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes an object smaller before it is stored, by dropping what nobody reads."""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = 0
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None
    deletion_timestamp: str | None = None


class _ManagedEntry(msgspec.Struct, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


class _AnnotatedMetadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct):
    metadata: _AnnotatedMetadata


_ANNOTATED = msgspec.json.Decoder(_Annotated)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA = msgspec.json.Decoder(_Metadata)
_MANAGED = msgspec.json.Decoder(list[_ManagedEntry])
_ENCODER = msgspec.json.Encoder()

# Objects of one kind share namespaces, the kinds of their owners and the shape of what their operator owns: each is
# kept once. The bound only matters to a kind where nothing is shared.
_KEPT_ONCE = 4096


class ObjectParser:
    """Turns the JSON of one kind's objects into `StoredObject`s.

    The items of a list of built-in kinds carry no apiVersion and kind; the parser puts them in. It takes managedFields
    out, and keeps the fields that `follow_manager` owns by server-side apply: they tell whether what an operator
    applied is still all there, without a request.
    """

    def __init__(
        self,
        api_version: str,
        kind: str,
        *,
        follow_manager: str = "",
        transform: Transform | None = None,
    ) -> None:
        self._api_version = msgspec.Raw(_ENCODER.encode(api_version))
        self._kind = msgspec.Raw(_ENCODER.encode(kind))
        self._follow_manager = follow_manager
        self._transform = transform
        self._shapes: dict[bytes, bytes] = {}
        self._strings: dict[str, str] = {}

    def __call__(self, raw: bytes | msgspec.Raw) -> StoredObject:
        fields = _FIELDS.decode(raw)
        wire_metadata = fields["metadata"]
        metadata = _METADATA.decode(wire_metadata)
        inner = _FIELDS.decode(wire_metadata)
        managed = inner.pop("managedFields", None)
        owned = b""
        if managed is not None:
            fields["metadata"] = msgspec.Raw(_ENCODER.encode(inner))
            if self._follow_manager:
                owned = self._owned_fields(managed)
        if "kind" not in fields:
            fields = {"apiVersion": self._api_version, "kind": self._kind, **fields}
        text = _ENCODER.encode(fields)
        if self._transform is not None:
            text = _ENCODER.encode(self._transform(msgspec.json.decode(text)))
        return StoredObject(
            key=Key(self._once(metadata.namespace), metadata.name),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            raw=bytes(memoryview(text)),  # the encoder's own buffer is up to a third larger than its text
            generation=metadata.generation or 0,
            labels=metadata.labels or _NO_LABELS,
            owners=self._owners(metadata.owner_references) if metadata.owner_references else (),
            finalizers=metadata.finalizers or (),
            deletion_timestamp=metadata.deletion_timestamp,
            owned_fields=owned,
        )

    def _owned_fields(self, managed: msgspec.Raw) -> bytes:
        for entry in _MANAGED.decode(managed):
            if entry.manager == self._follow_manager and entry.operation == "Apply" and not entry.subresource:
                shape = bytes(entry.fields_v1)
                if len(self._shapes) >= _KEPT_ONCE:
                    self._shapes.clear()
                return self._shapes.setdefault(shape, shape)
        return b""

    def _owners(self, owners: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
        return tuple(
            OwnerReference(
                self._once(each.kind), each.name, each.uid, self._once(each.api_version), each.controller
            )
            for each in owners
        )

    def _once(self, text: str) -> str:
        if len(self._strings) >= _KEPT_ONCE:
            self._strings.clear()
        return self._strings.setdefault(text, text)


_NO_LABELS: dict[str, str] = {}


# -- the store -------------------------------------------------------------------------------------------------

Index = Callable[[StoredObject], Iterable[Hashable]]
"""The values under which an object is found by `Store.by_index`."""


def _by_owner(stored: StoredObject) -> Iterable[Hashable]:
    return [owner.uid for owner in stored.owners]


def _by_namespace(stored: StoredObject) -> Iterable[Hashable]:
    return (stored.namespace,)


def by_label(name: str) -> Index:
    """An index by the value of one label."""

    def values(stored: StoredObject) -> Iterable[Hashable]:
        value = stored.labels.get(name)
        return () if value is None else (value,)

    return values


class _Table:
    """One index: value to keys. Most values of an owner index have one key, which then costs no set of its own."""

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
        found = self._keys.get(value)
        if found is None:
            return ()
        return found if isinstance(found, set) else (found,)

    def add(self, value: Hashable, key: Key) -> None:
        found = self._keys.get(value)
        if found is None or found == key:
            self._keys[value] = key
        elif isinstance(found, set):
            found.add(key)
        else:
            self._keys[value] = {found, key}

    def discard(self, value: Hashable, key: Key) -> None:
        found = self._keys.get(value)
        if isinstance(found, set):
            found.discard(key)
            if found:
                return
        elif found != key:
            return
        del self._keys[value]


class Store:
    """The objects of one kind: what the watch said, and over it what we have written and the watch has not yet said.

    Reading prefers the newer of the two, so a reconcile always sees its own writes, deletes included. The cache never
    goes back in time: an event older than what is stored is dropped. Only `replace`, a relist, may go back.
    """

    OWNER = "owner"
    NAMESPACE = "namespace"

    def __init__(self) -> None:
        self._objects: dict[Key, StoredObject] = {}
        self._written: dict[Key, StoredObject] = {}
        self._deleted: dict[Key, str] = {}
        self._told = -1
        """Up to which version the watch has told everything."""
        self._indexers: dict[str, Index] = {self.OWNER: _by_owner, self.NAMESPACE: _by_namespace}
        self._indexes: dict[str, _Table] = {self.OWNER: _Table(), self.NAMESPACE: _Table()}

    # -- reading -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject]:
        if not self._written and not self._deleted:
            yield from list(self._objects.values())
            return
        for key in [*self._objects, *(key for key in self._written if key not in self._objects)]:
            found = self.get(key)
            if found is not None:
                yield found

    def get(self, key: Key) -> StoredObject | None:
        """The newest known state of one object; None if there is none, or we deleted it."""
        stored = self._objects.get(key)
        if self._written:
            written = self._written.get(key)
            if written is not None and (stored is None or written.version > stored.version):
                stored = written
        if self._deleted and stored is not None and self._deleted.get(key) == stored.uid:
            return None
        return stored

    def seen(self, key: Key) -> StoredObject | None:
        """What the watch said last about one object, without our own writes."""
        return self._objects.get(key)

    def select(self, *, namespace: str = "", labels: LabelSelector = None) -> list[StoredObject]:
        """All objects, or those of a namespace, with these labels."""
        found: Iterable[StoredObject] = self.by_index(self.NAMESPACE, namespace) if namespace else self
        matches = matcher(labels)
        return [each for each in found if matches is None or matches(each.labels)]

    def by_index(self, index: str, value: Hashable) -> list[StoredObject]:
        """The objects that the index files under this value."""
        indexer = self._indexers.get(index)
        if indexer is None:
            raise KeyError(f"no index {index!r} here; there are {', '.join(sorted(self._indexers))}")
        keys = self._indexes[index].keys(value)
        if not self._written and not self._deleted:
            return [self._objects[key] for key in keys]
        found = []
        for key in {*keys, *self._written}:
            stored = self.get(key)
            if stored is not None and value in indexer(stored):
                found.append(stored)
        return found

    def owned_by(self, uid: str) -> list[StoredObject]:
        """The objects with an owner reference to this UID."""
        return self.by_index(self.OWNER, uid)

    def add_index(self, name: str, indexer: Index) -> None:
        """File all objects under one more index, now and from now on."""
        if name in self._indexers:
            if self._indexers[name] is not indexer:
                raise ValueError(f"there is another index {name!r} here already")
            return
        self._indexers[name] = indexer
        self._indexes[name] = _Table.of(indexer, self._objects)

    # -- what the watch says -----------------------------------------------------------------------------------

    def replace(self, objects: Iterable[StoredObject], resource_version: str) -> list[Change]:
        """Swap in a whole list and say what that changed, deletes included. A declared relist: may go back in time."""
        fresh = {each.key: each for each in objects}
        changes = []
        for key, old in self._objects.items():
            new = fresh.get(key)
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
        self._told = -1
        self.caught_up(resource_version)
        return changes

    def upsert(self, new: StoredObject) -> list[Change]:
        """An ADDED or MODIFIED event. Says what it changed: nothing if it is old news."""
        key = new.key
        old = self._objects.get(key)
        if self._is_old_news(new, old):
            return []
        self._put(key, old, new)
        self._told = max(self._told, new.version)
        if self._written:
            self._drop_written_until(key, new.version)
        if self._deleted and self._deleted.get(key, new.uid) != new.uid:
            del self._deleted[key]
        if old is not None and old.uid != new.uid:  # deleted and made again between two events
            return [Change(old, None), Change(None, new)]
        return [Change(old, new)]

    def remove(self, last: StoredObject) -> list[Change]:
        """A DELETED event, with the object's last state."""
        key = last.key
        old = self._objects.get(key)
        self._told = max(self._told, last.version)
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
        """The watch has told everything up to this version: our writes until then need no place of their own."""
        reached = version_number(resource_version)
        self._told = max(self._told, reached)
        if self._written:
            self._written = {key: each for key, each in self._written.items() if each.version > reached}

    # -- what we write -----------------------------------------------------------------------------------------

    def note_write(self, written: StoredObject) -> None:
        """The response of a write: readers see it at once, unless the watch has told of it, or of more, already."""
        if written.version <= self._told:
            return
        known = self.get(written.key)
        if known is not None and known.uid == written.uid and known.version >= written.version:
            return
        self._written[written.key] = written

    def note_delete(self, key: Key, uid: str) -> None:
        """The server said the object is gone: readers see that at once."""
        written = self._written.get(key)
        if written is not None and written.uid == uid:
            # Its ADDED may still be on the way; the entry goes with its DELETED or the next list.
            del self._written[key]
            self._deleted[key] = uid
        stored = self._objects.get(key)
        if stored is not None and stored.uid == uid:
            self._deleted[key] = uid

    @property
    def ahead(self) -> int:
        """How many of our own writes the watch has not told yet."""
        return len(self._written) + len(self._deleted)

    # -- inside ------------------------------------------------------------------------------------------------

    def _is_old_news(self, new: StoredObject, old: StoredObject | None) -> bool:
        """A watch tells changes in the order of their versions: one at or before the last is a repetition."""
        version = new.version
        if version < 0:  # no number to compare: only an exact repetition can be told
            return old is not None and (old.uid, old.resource_version) == (new.uid, new.resource_version)
        return version <= self._told

    def _drop_written_until(self, key: Key, version: int) -> None:
        mine = self._written.get(key)
        if mine is not None and mine.version <= version:
            del self._written[key]
        # The watch tells changes in order, so whatever we wrote earlier has been told too. Responses arrive nearly in
        # order: looking at the oldest entries is enough, a straggler is harmless since readers take the newer anyway.
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

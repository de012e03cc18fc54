"""The controllers' view of the store: the newest state, decoded once per revision, indexed by controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    CONTROLLER_REVISION,
    JOB,
    POD,
    REPLICA_SET,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_uid
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange, Stored

_INDEXED = (POD, REPLICA_SET, JOB, CONTROLLER_REVISION)


class PodsByNode:
    """The pods of each node, counted without decoding them."""

    def __init__(self, by_node: Mapping[str, Sized], pods: Callable[[str], list[Object]]) -> None:
        self._by_node = by_node
        self.pods = pods

    def count(self, node: str) -> int:
        """Return the number of pods on a node."""
        return len(self._by_node.get(node, ()))


class View:
    """A view that reads directly from the store, so a controller never acts on a stale cache.

    The objects it returns are shared: callers must not modify them. They have no managedFields, which no controller
    reads and which are two fifths of a decoded pod; an update without them leaves the stored ones as they are.
    """

    def __init__(self, backend: Backend) -> None:
        self._store = backend.store
        self._decoded: dict[tuple[str, str], dict[str, tuple[int, Object]]] = {}
        self._by_controller: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
        self._controller: dict[tuple[str, str], dict[str, str]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._node: dict[str, str] = {}
        self._repelling: dict[str, None] = {}
        for kind in _INDEXED:
            self._by_controller[kind.group, kind.resource] = {}
            self._controller[kind.group, kind.resource] = {}
            collection = self._collection(kind)
            for stored in collection.current():
                self._index(collection.key, stored)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        stored = self._collection(kind).get(f"{namespace}/{name}" if kind.namespaced else name)
        return None if stored is None else self._decode((kind.group, kind.resource), stored)

    def objects(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a kind, in one namespace or in all."""
        collection = self._collection(kind)
        prefix = f"{namespace}/" if namespace and kind.namespaced else ""
        return [self._decode(collection.key, stored) for stored in collection.current(prefix)]

    def owned(self, kind: Kind, uid: str) -> list[Object]:
        """Return the objects of a kind whose controller has this uid."""
        return self._many(kind, self._by_controller[kind.group, kind.resource].get(uid, ()))

    def orphans(self, kind: Kind, namespace: str) -> list[Object]:
        """Return the objects of a kind without a controller: candidates for adoption."""
        prefix = f"{namespace}/"
        keys = self._by_controller[kind.group, kind.resource].get("", ())
        return self._many(kind, [key for key in keys if key.startswith(prefix)])

    def pods_on(self, node: str) -> list[Object]:
        """Return the pods bound to a node."""
        return self._many(POD, self._by_node.get(node, ()))

    @property
    def pods_by_node(self) -> PodsByNode:
        """The pods of each node."""
        return PodsByNode(self._by_node, self.pods_on)

    def repelling_pods(self) -> list[Object]:
        """Return the pods on nodes that have required anti-affinity."""
        return self._many(POD, self._repelling)

    def nodes_with_pods(self) -> list[str]:
        """Return the names of the nodes that have pods."""
        return [node for node, keys in self._by_node.items() if node and keys]

    def unscheduled(self) -> list[Object]:
        """Return the pods without a node."""
        return self._many(POD, self._by_node.get("", ()))

    def is_indexed(self, key: tuple[str, str]) -> bool:
        """Return whether the resource has an index that must follow its changes."""
        return key in self._controller

    def follow(self, collection: Collection, change: StoreChange) -> tuple[Object | None, Object | None]:
        """Update the indexes after a change. Returns the new object and the old one."""
        key = collection.key
        old = None
        if change.previous is not None:
            revision, decoded = self._decoded.get(key, {}).get(change.object.key, (0, {}))
            old = decoded if revision == change.previous.revision else decode(change.previous)
        if change.type == "DELETED":
            self._decoded.get(key, {}).pop(change.object.key, None)
            if key in self._controller:
                self._unindex(key, change.object.key)
            return None, old
        if key in self._controller:
            self._index(key, change.object)
        return self._decode(key, change.object), old

    def _collection(self, kind: Kind) -> Collection:
        return self._store.collection(kind.group, kind.resource)

    def _many(self, kind: Kind, keys: Iterable[str]) -> list[Object]:
        collection = self._collection(kind)
        entries = (collection.get(key) for key in list(keys))
        return [self._decode(collection.key, stored) for stored in entries if stored is not None]

    def _decode(self, key: tuple[str, str], stored: Stored) -> Object:
        decoded = self._decoded.setdefault(key, {})
        cached = decoded.get(stored.key)
        if cached is not None and cached[0] == stored.revision:
            return cached[1]
        obj = decode(stored)
        obj["metadata"].pop("managedFields", None)
        decoded[stored.key] = stored.revision, obj
        return obj

    def _index(self, key: tuple[str, str], stored: Stored) -> None:
        obj = self._decode(key, stored)
        uid = controller_uid(obj)
        if self._controller[key].get(stored.key) != uid:
            self._drop(self._by_controller[key], self._controller[key].get(stored.key), stored.key)
            self._controller[key][stored.key] = uid
            self._by_controller[key].setdefault(uid, {})[stored.key] = None
        if key == (POD.group, POD.resource):
            node = obj["spec"].get("nodeName") or ""
            if self._node.get(stored.key) != node:
                self._drop(self._by_node, self._node.get(stored.key), stored.key)
                self._node[stored.key] = node
                self._by_node.setdefault(node, {})[stored.key] = None
                if node and "podAntiAffinity" in (obj["spec"].get("affinity") or {}):
                    self._repelling[stored.key] = None

    def _unindex(self, key: tuple[str, str], object_key: str) -> None:
        self._drop(self._by_controller[key], self._controller[key].pop(object_key, None), object_key)
        if key == (POD.group, POD.resource):
            self._drop(self._by_node, self._node.pop(object_key, None), object_key)
            self._repelling.pop(object_key, None)

    @staticmethod
    def _drop(index: dict[str, dict[str, None]], value: str | None, key: str) -> None:
        if value is None:
            return
        keys = index.get(value)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del index[value]

"""Triggers: from what a controller declares to watches, and from a change of any of them to the keys that must run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.cache.store import Change, Key, StoredObject
from kapsa.runtime.controller.controller import Concerned, Controller, Owns, Watch, takes_cache
from kapsa.runtime.controller.workqueue import Priority
from kapsa.runtime.resources.kind import kind_of

__all__ = ["Triggers", "Wake"]

Wake = Callable[[Key, Change, str, Priority], None]
"""Told which key must run, because of which change to an object of which kind, and how urgent that is."""


class Triggers:
    """Listens to every watch of one controller."""

    def __init__(
        self, controller: Controller[Any], cache: Cache, *, wake: Wake, gone: Callable[[Key], None]
    ) -> None:
        self.enabled = False
        """Whether anybody is woken. What is gone is told all the same."""
        self._controller = controller
        self._gvk = controller.gvk
        self._cache = cache
        self._wake = wake
        self._gone = gone
        self.informers: list[Informer] = [
            *self._watch_resource(),
            *self._watch_children(),
            *self._watch_others(),
            *self._watch_what_is_read(),
        ]

    def _watch_resource(self) -> list[Informer]:
        found = self._cache.watch(self._controller.resource, labels=self._controller.labels)
        for informer in found:
            informer.add_handler(self._resource_changed)
            for name, index in self._controller.indexes.items():
                informer.store.add_index(name, index)
        return found

    def _watch_children(self) -> list[Informer]:
        found = []
        for owned in self._controller.owned:
            for informer in self._cache.watch(
                owned.kind, labels=owned.labels, metadata_only=owned.metadata_only, transform=owned.transform
            ):
                informer.add_handler(self._child_handler(owned))
                found.append(informer)
        return found

    def _watch_others(self) -> list[Informer]:
        found = []
        for watch in self._controller.watches:
            for informer in self._cache.watch(
                watch.kind,
                labels=watch.labels,
                fields=watch.fields,
                metadata_only=watch.metadata_only,
                transform=watch.transform,
                optional=watch.optional,
            ):
                informer.add_handler(self._mapped_handler(watch))
                found.append(informer)
        return found

    def _watch_what_is_read(self) -> list[Informer]:
        return [
            informer
            for read in self._controller.read
            for informer in self._cache.watch(
                read.kind,
                labels=read.labels,
                fields=read.fields,
                metadata_only=read.metadata_only,
                transform=read.transform,
                optional=read.optional,
            )
        ]

    # -- from changes to keys ----------------------------------------------------------------------------------

    def _resource_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            self._gone(change.object.key)
            return
        if not self.enabled or not all(predicate(change) for predicate in self._controller.predicates):
            return
        asked_for = (
            old is None
            or old.generation != new.generation
            or old.deletion_timestamp != new.deletion_timestamp
        )
        self._tell(new.key, change, self._gvk.kind, Priority.CHANGE if asked_for else Priority.EVENT)

    def _child_handler(self, owned: Owns) -> Callable[[Change], None]:
        child_kind = kind_of(owned.kind).kind
        group, kind = self._gvk.group, self._gvk.kind

        def changed(change: Change) -> None:
            if not self.enabled or not all(predicate(change) for predicate in owned.predicates):
                return
            told = None
            for side in (change.new, change.old):
                owner = side.controller if side is not None else None
                if owner is None or owner.kind != kind or owner.group != group or owner.uid == told:
                    continue
                told = owner.uid
                key = self._owner_key(owner.name, owner.uid, change.object.namespace)
                if key is not None:
                    self._tell(key, change, child_kind, Priority.EVENT)

        return changed

    def _owner_key(self, name: str, uid: str, namespace: str) -> Key | None:
        """The owner's key. A cluster-scoped owner may have children in any namespace."""
        for key in (Key(namespace, name), Key("", name)):
            found = self._cache.get(self._gvk, key)
            if found is not None and found.uid == uid:
                return key
        return None

    def _mapped_handler(self, watch: Watch) -> Callable[[Change], None]:
        kind = kind_of(watch.kind).kind
        concerned = self._mapper(watch)

        def changed(change: Change) -> None:
            if not self.enabled or not all(predicate(change) for predicate in watch.predicates):
                return
            keys = dict.fromkeys(
                Key(*key) for side in (change.old, change.new) if side is not None for key in concerned(side)
            )
            for key in keys:
                self._tell(key, change, kind, Priority.EVENT)

        return changed

    def _mapper(self, watch: Watch) -> Callable[[StoredObject], Concerned]:
        mapper: Any = watch.map
        if not takes_cache(mapper):
            return mapper  # type: ignore[no-any-return]  # its signature has just been looked at
        return lambda stored: mapper(stored, self._cache)

    def _tell(self, key: Key, change: Change, kind: str, priority: Priority) -> None:
        self._wake(key, change, kind, Priority.BACKGROUND if change.initial else priority)

"""Triggers: from the declarations of a controller to watches, and from a change to the keys that must run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.cache.store import Index
from kapsa.runtime.controller._subscriptions import Subscriptions
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.declarations import Keys, Owns, Reads, Watch, takes_cache
from kapsa.runtime.controller.predicates import Predicate
from kapsa.runtime.controller.triggers._unmapped_changes import UnmappedChanges
from kapsa.runtime.controller.work.shard import Shard
from kapsa.runtime.controller.work.workqueue import Priority, Reason, WorkQueue
from kapsa.runtime.resources.kind import kind_of
from kapsa.runtime.resources.stored_object import Change, Key, StoredObject

__all__ = ["Triggers"]

_log = structlog.get_logger(__name__)

_LOGGED_FAILURES = 100
"""Distinct failures of predicates and maps that are logged; a tenant's data may be part of each message."""

_Source: TypeAlias = Callable[[Change], Iterable[tuple[Key, Priority]]]
"""A function from a change to the keys that must run because of it, with their priorities."""


class Triggers:
    """The triggers of a controller, which add to its queue the keys that a change concerns."""

    def __init__(
        self,
        controller: Controller[Any],
        *,
        cache: Cache,
        queue: WorkQueue[Key],
        subscriptions: Subscriptions,
        shard: Shard | None = None,
        count_failure: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.enabled = False
        """True while changes are added to the queue."""
        self._controller = controller
        self._gvk = controller.gvk
        self._cache = cache
        self._queue = queue
        self._subscriptions = subscriptions
        self._shard = shard
        self._count_failure = count_failure
        self._logged: set[tuple[str, str]] = set()
        self._unmapped = UnmappedChanges(lambda: self.enqueue_all("Unmapped"))
        self._sources: dict[Informer, list[_Source]] = {}
        self._watch_resource()
        self._watch_children()
        self._watch_others()
        self._watch_reads()
        self.informers = list(self._sources)
        for informer, sources in self._sources.items():
            if sources:
                informer.add_handler(self._handler(informer, tuple(sources)))

    def enable(self) -> None:
        """Add changes to the queue from now on, beginning with all resources."""
        self.enabled = True
        self.enqueue_all("Started")

    def disable(self) -> None:
        """Add no more changes to the queue."""
        self.enabled = False
        self._unmapped.clear()

    def enqueue_all(self, event: str) -> None:
        """Add every resource of the controller, with this reason."""
        shard, kind = self._shard, self._gvk.kind
        for stored in self._cache.select(self._gvk, labels=self._controller.labels):
            key = stored.key
            if shard is None or key in shard:
                self._queue.add(key, Reason(event, kind, *key), priority=Priority.BACKGROUND)

    def handle(self, watch: Watch, informers: list[Informer]) -> None:
        """Map the changes of a watch that a run has added."""
        for informer in informers:
            informer.add_handler(self._handler(informer, (self._concerned(watch),)))

    # -- from declarations to watches ------------------------------------------------------------------------

    def _add(self, informers: Iterable[Informer], source: _Source | None = None) -> None:
        for informer in informers:
            sources = self._sources.setdefault(informer, [])
            if source is not None:
                sources.append(source)

    def _watch_resource(self) -> None:
        informers = self._cache.watch(self._controller.resource, labels=self._controller.labels)
        self._add(informers, self._resource)
        for informer in informers:
            informer.add_handler(self._forget_if_gone)
        _add_indexes(informers, self._controller.indexes)

    def _watch_children(self) -> None:
        for owned in self._controller.owned:
            informers = self._cache.watch(
                owned.kind, labels=owned.labels, metadata_only=owned.metadata_only, transform=owned.transform
            )
            _add_indexes(informers, owned.indexes)
            self._add(informers, self._owners(owned))

    def _watch_others(self) -> None:
        for watch in self._controller.watches:
            self._add(self._declared(watch), self._concerned(watch))

    def _watch_reads(self) -> None:
        for read in self._controller.read:
            self._add(self._declared(read))

    def _declared(self, declaration: Watch | Reads) -> list[Informer]:
        informers = self._cache.watch(
            declaration.kind,
            labels=declaration.labels,
            fields=declaration.fields,
            metadata_only=declaration.metadata_only,
            transform=declaration.transform,
            optional=declaration.optional,
        )
        _add_indexes(informers, declaration.indexes)
        return informers

    # -- from changes to keys --------------------------------------------------------------------------------

    def _forget_if_gone(self, change: Change) -> None:
        if change.new is None:
            key = change.object.key
            self._queue.drop(key)
            self._subscriptions.drop(key)

    def _resource(self, change: Change) -> Iterable[tuple[Key, Priority]]:
        """Yield the changed resource itself."""
        old, new = change.old, change.new
        if new is None:  # so that the reconciler forgets it, too
            yield change.object.key, Priority.BACKGROUND
            return
        if not self._passes(self._controller.predicates, change):
            return
        requested = (
            old is None
            or old.generation != new.generation
            or old.deletion_timestamp != new.deletion_timestamp
        )
        yield new.key, Priority.CHANGE if requested else Priority.EVENT

    def _handler(self, informer: Informer, sources: Sequence[_Source]) -> Callable[[Change], None]:
        """Return the handler of one watch.

        A key that several declarations lead to is added once: the queue expects one echo of each write.
        """
        kind = informer.scope.gvk.kind

        def changed(change: Change) -> None:
            if not self.enabled:
                return
            keys: dict[Key, Priority] = {}
            failed = [source for source in sources if not self._collect(source, change, keys)]
            for key, priority in keys.items():
                self._enqueue(key, change, kind, priority)
            for source in failed:
                self._unmapped.add(functools.partial(again, source, change, set(keys)))

        def again(source: _Source, change: Change, added: set[Key]) -> bool:
            keys: dict[Key, Priority] = {}
            mapped = self._collect(source, change, keys)
            for key in keys.keys() - added:
                self._enqueue(key, change, kind, keys[key])
            added.update(keys)
            return mapped

        return changed

    def _collect(self, source: _Source, change: Change, keys: dict[Key, Priority]) -> bool:
        """Add to `keys` those that a source yields. Return False if it raised before its end."""
        try:
            for key, priority in source(change):
                keys[key] = max(priority, keys.get(key, priority))
        except Exception as error:
            self._report("map", "map failed: the change is mapped again with back-off", change, error)
            return False
        return True

    def _passes(self, predicates: Sequence[Predicate], change: Change) -> bool:
        """Return whether a change causes a run.

        A predicate that raises counts as true: a run too many is harmless, one too few loses the change.
        """
        if not predicates:
            return True
        try:
            return all(predicate(change) for predicate in predicates)
        except Exception as error:
            self._report("predicate", "predicate failed: the change counts as relevant", change, error)
            return True

    def _report(self, step: str, message: str, change: Change, error: Exception) -> None:
        """Count a failure in the author's code, and log each distinct one once, with a traceback."""
        self._count_failure(step)
        failure = (step, repr(error))
        if failure in self._logged or len(self._logged) >= _LOGGED_FAILURES:
            return
        self._logged.add(failure)
        _log.error(message, controller=self._controller.name, object=str(change.object.key), exc_info=error)

    def _owners(self, owned: Owns) -> _Source:
        """Return a source of the resources that control, or controlled, a changed child."""
        group, kind = self._gvk.group, self._gvk.kind

        def owners(change: Change) -> Iterable[tuple[Key, Priority]]:
            if not self._passes(owned.predicates, change):
                return
            seen = None
            for side in (change.new, change.old):
                owner = side.controller if side is not None else None
                if owner is None or owner.kind != kind or owner.group != group or owner.uid == seen:
                    continue
                seen = owner.uid
                # A child that is gone may have kept a new resource of its owner's name waiting.
                uid = owner.uid if change.new is not None else ""
                key = self._owner_key(owner.name, uid, change.object.namespace)
                if key is not None:
                    yield key, Priority.EVENT

        return owners

    def _owner_key(self, name: str, uid: str, namespace: str) -> Key | None:
        """Return the owner's key, of any UID if that is empty.

        A cluster-scoped owner may have children in any namespace.
        """
        for key in (Key(namespace, name), Key("", name)):
            owner = self._cache.get(self._gvk, key)
            if owner is not None and uid in ("", owner.uid):
                return key
        return None

    def _concerned(self, watch: Watch) -> _Source:
        """Return a source of the resources that track a changed object, and of those that `map` returns."""
        gvk = kind_of(watch.kind)
        mapper = self._mapper(watch)

        def concerned(change: Change) -> Iterable[tuple[Key, Priority]]:
            if not self._passes(watch.predicates, change):
                return
            for reader in self._subscriptions.readers(gvk, change.object.key):
                yield reader, Priority.EVENT
            if mapper is not None:
                for side in (change.old, change.new):
                    for key in mapper(side) if side is not None else ():
                        yield Key(*key), Priority.EVENT

        return concerned

    def _mapper(self, watch: Watch) -> Callable[[StoredObject], Keys] | None:
        mapper: Any = watch.map
        if mapper is not None and takes_cache(mapper):
            return lambda stored: mapper(stored, self._cache)
        return mapper  # type: ignore[no-any-return]  # its signature has just been checked

    def _enqueue(self, key: Key, change: Change, kind: str, priority: Priority) -> None:
        new = change.new
        # A delete or an object of a list is never the echo of a write.
        identity = None if new is None or change.initial else (new.uid, new.resource_version)
        self._queue.add(
            key,
            Reason(change.event, kind, *change.object.key),
            priority=Priority.BACKGROUND if change.initial else priority,
            change=identity,
        )


def _add_indexes(informers: Iterable[Informer], indexes: Mapping[str, Index]) -> None:
    for informer in informers:
        for name, index in indexes.items():
            informer.store.add_index(name, index)

"""The cache: the informers of one operator, shared by its controllers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

from kapsa.runtime.cache.informer import Informer, Selection, WatchScope
from kapsa.runtime.cache.object_parser import Transform
from kapsa.runtime.client.client import Client
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.selector import LabelSelector, matcher, selector_text
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["Cache", "NotWatchedError", "Scopes"]

Scopes: TypeAlias = frozenset[Selection] | None
"""The selections that a reader declares: it sees the objects of those only. None: all objects of the cache."""


class NotWatchedError(LookupError):
    """A kind was read from the cache that no controller declares."""

    def __init__(self, gvk: GroupVersionKind, watched: Iterable[GroupVersionKind]) -> None:
        kinds = ", ".join(sorted(map(str, watched))) or "nothing"
        super().__init__(
            f"{gvk} is not watched, so it cannot be read from the cache (watched: {kinds}). Declare it in the "
            "controller's owns, watches or reads, or read it live with ctx.client."
        )


class Cache:
    """The objects of the cluster that an operator watches, read without a request."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Sequence[str] = (),
        follow_manager: str = "",
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces) or ("",)
        self._follow_manager = follow_manager
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._informers: dict[WatchScope, Informer] = {}
        self._by_kind: dict[GroupVersionKind, list[Informer]] = {}
        self._started = False

    def watch(
        self,
        kind: Kind,
        *,
        labels: LabelSelector = None,
        fields: str = "",
        metadata_only: bool = False,
        transform: Transform | None = None,
        optional: bool = False,
    ) -> list[Informer]:
        """Return the informers of a kind, one for each namespace of the operator. Create missing ones.

        A controller that declares the kind as `optional` does not wait until the cluster serves it; others
        still do.
        """
        gvk = kind_of(kind)
        return [
            self._informer(
                WatchScope(gvk, namespace, selector_text(labels), fields, metadata_only),
                kind,
                transform,
                optional=optional,
            )
            for namespace in self._namespaces
        ]

    def _informer(
        self, scope: WatchScope, kind: Kind, transform: Transform | None, *, optional: bool
    ) -> Informer:
        informer = self._informers.get(scope)
        if informer is None:
            informer = Informer(
                self._client,
                scope,
                kind=kind,
                transform=transform,
                follow_manager=self._follow_manager,
                rng=self._rng,
            )
            informer.required = not optional
            self._informers[scope] = informer
            self._by_kind.setdefault(scope.gvk, []).append(informer)
            if self._started:
                informer.start()
        elif informer.transform is not transform:
            raise ValueError(f"watch of {scope} has two transforms: declare the same one in each controller")
        else:
            informer.required = informer.required or not optional
        return informer

    @property
    def informers(self) -> list[Informer]:
        return list(self._informers.values())

    def of_kind(self, gvk: GroupVersionKind) -> list[Informer]:
        """Return the informers of a kind, one for each scope.

        Raises NotWatchedError if no controller declares it.
        """
        informers = self._by_kind.get(gvk)
        if not informers:
            raise NotWatchedError(gvk, self._by_kind)
        return informers

    def watches(self, gvk: GroupVersionKind) -> bool:
        """Return whether a controller declares this kind."""
        return gvk in self._by_kind

    def keeps_all_of(self, gvk: GroupVersionKind, *, scopes: Scopes = None) -> bool:
        """Return whether objects of the kind are stored whole: not metadata only, and without a transform."""
        return not any(
            (each.scope.metadata_only or each.transform)
            and (scopes is None or each.scope.selection in scopes)
            for each in self._by_kind.get(gvk, ())
        )

    def delivered(self, gvk: GroupVersionKind) -> int:
        """Return the version up to which every watch of a kind has delivered all changes."""
        return min(informer.store.delivered for informer in self.of_kind(gvk))

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, gvk: GroupVersionKind, key: Key, *, scopes: Scopes = None) -> StoredObject | None:
        """Return an object as it was last delivered or written; None if there is none."""
        informers = self.of_kind(gvk)
        if len(informers) == 1:  # of nearly every kind; a reconcile asks several times
            return informers[0].store.get(key)
        for informer in self._within(gvk, scopes):
            stored = informer.store.get(key)
            if stored is not None:
                return stored
        return None

    def select(
        self,
        gvk: GroupVersionKind,
        *,
        namespace: str = "",
        labels: LabelSelector = None,
        owner: str = "",
        scopes: Scopes = None,
    ) -> list[StoredObject]:
        """Return objects by namespace, labels and owner's UID, each once."""
        selected: dict[Key, StoredObject] = {}
        matches = matcher(labels)
        for informer in self._within(gvk, scopes):
            store = informer.store
            for each in store.owned_by(owner) if owner else store.select(namespace=namespace):
                if (matches is None or matches(each.labels)) and namespace in ("", each.namespace):
                    selected.setdefault(each.key, each)
        return list(selected.values())

    def _within(self, gvk: GroupVersionKind, scopes: Scopes) -> list[Informer]:
        """Return the informers of a kind that have one of these scopes."""
        informers = self.of_kind(gvk)
        if scopes is None or len(informers) == 1:
            return informers
        return [each for each in informers if each.scope.selection in scopes]

    def by_index(self, kind: Kind, index: str, value: Hashable) -> list[StoredObject]:
        """Return the objects that a declared index of the kind lists under this value, each once."""
        selected = {
            each.key: each
            for informer in self.of_kind(kind_of(kind))
            if informer.store.has_index(index)
            for each in informer.store.by_index(index, value)
        }
        if not selected and not any(each.store.has_index(index) for each in self.of_kind(kind_of(kind))):
            raise LookupError(
                f"{kind_of(kind)} has no index {index!r}: declare it in the indexes of its controller, or of an "
                "Owns, Watch or Reads"
            )
        return list(selected.values())

    # -- our own writes --------------------------------------------------------------------------------------

    def note_write(self, gvk: GroupVersionKind, raw: bytes) -> StoredObject | None:
        """Record the response to a write: readers see it from now on.

        Return the object, as the cache keeps it if it does; None if the kind is not watched.
        """
        written: StoredObject | None = None
        kept: StoredObject | None = None
        for informer in self._by_kind.get(gvk, ()):
            scope = informer.scope
            written = informer.parse(raw)
            if scope.namespace not in ("", written.namespace) or scope.fields:
                continue
            matches = matcher(scope.labels)
            if matches is None or matches(written.labels):
                kept = informer.store.note_write(written)
        return kept or written

    def note_delete(self, gvk: GroupVersionKind, key: Key, uid: str) -> None:
        """Record that the server has deleted an object: readers see it from now on."""
        for informer in self._by_kind.get(gvk, ()):
            if informer.scope.namespace in ("", key.namespace):
                informer.store.note_delete(key, uid)

    # -- start and stop --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all watches."""
        self._started = True
        for informer in self._informers.values():
            informer.start()

    async def stop(self) -> None:
        """Stop all watches."""
        self._started = False
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))

"""The primary resource of one run: its newest state, the writes to it, and the record of what the run writes.

A status or finalizer is written with the version, or the UID, that was read: a run never overwrites what it
has not seen.
"""

from __future__ import annotations

from typing import Any

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.client.client import Client, PatchType
from kapsa.runtime.controller.outcomes import OutdatedError
from kapsa.runtime.controller.work.workqueue import Item, Reason
from kapsa.runtime.errors import Conflict, Invalid, NotFound
from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["Primary"]

_FINALIZER_ATTEMPTS = 5


class Primary:
    """The resource that one run reconciles. Every write of the run is recorded here."""

    __slots__ = ("_cache", "_confirmed", "_item", "client", "gvk", "kind", "stored")

    def __init__(
        self,
        stored: StoredObject,
        item: Item[Key],
        *,
        kind: Kind,
        gvk: GroupVersionKind,
        client: Client,
        cache: Cache,
    ) -> None:
        self.stored = stored
        """The resource as last read or written by this run."""
        self.kind = kind
        self.gvk = gvk
        self.client = client
        self._cache = cache
        self._item = item
        self._confirmed = False

    @property
    def key(self) -> Key:
        return self._item.key

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for this run."""
        return tuple(self._item.reasons)

    @property
    def failures(self) -> int:
        """Failures of this resource in a row before this run."""
        return self._item.failures

    # -- record ----------------------------------------------------------------------------------------------

    def record(
        self,
        gvk: GroupVersionKind,
        raw: bytes,
        *,
        replaced: StoredObject | None = None,
        redundant: bool = False,
    ) -> StoredObject | None:
        """Record the response to a write: readers see it, and its echo causes no run of this resource.

        A write that left the version of the `replaced` object as it was changed nothing and has no echo. Nor
        has a `redundant` write, which `replaced` did not need: if the version differs, another party changed
        the object, and the watch has yet to deliver that.
        Return the object as the cache keeps it; None if its kind is not watched.
        """
        stored = self._cache.note_write(gvk, raw)
        if stored is None:
            return None
        unchanged = replaced is not None and replaced.resource_version == stored.resource_version
        if not unchanged and not redundant and not self._begins_deletion(stored):
            self._item.wrote((stored.uid, stored.resource_version))
        return stored

    def record_delete(self, gvk: GroupVersionKind, key: Key, uid: str) -> None:
        """Record that an object is gone: readers of the cache see it."""
        self._cache.note_delete(gvk, key, uid)

    def _begins_deletion(self, stored: StoredObject) -> bool:
        """Return whether the resource deletes itself with this write. That is news: finalize() comes next."""
        return (
            stored.deletion_timestamp is not None
            and stored.uid == self.stored.uid
            and self.stored.deletion_timestamp is None
        )

    # -- reading ---------------------------------------------------------------------------------------------

    async def confirm(self, child: StoredObject | None, gvk: GroupVersionKind, key: Key) -> None:
        """Raise OutdatedError if this run would undo a child that was made from a newer spec.

        Watches of two kinds are not synchronized. A child that is newer than everything the cache has of its
        owner may have been made from a spec that this run has not seen, and one that was just deleted may
        have been deleted with its owner. In doubt the resource is read from the server, once in a run. A
        deletion is never taken back, so for a resource that is being deleted there is no doubt.
        """
        if self._confirmed or self.stored.deletion_timestamp is not None:
            return
        if child is None:
            doubtful = Reason("Deleted", gvk.kind, *key) in self._item.reasons
        else:
            doubtful = child.version > max(self.stored.version, self._cache.delivered(self.gvk))
        if doubtful:
            before = self.stored
            if not await self._reread() or before.fingerprint() != self.stored.fingerprint():
                raise OutdatedError(f"{self.gvk.kind} {self.key} has changed since this run began")
            self._confirmed = True

    async def _reread(self) -> bool:
        """Read the resource from the server.

        Return False if it is gone or replaced by another of the same name.
        """
        try:
            raw = await self.client.get(self.kind, self.key.name, into=bytes, namespace=self.key.namespace)
        except NotFound:
            self._cache.note_delete(self.gvk, self.key, self.stored.uid)
            return False
        stored = self._cache.note_write(self.gvk, raw)
        if stored is None or stored.uid != self.stored.uid:
            return False
        self.stored = stored
        return True

    # -- writing ---------------------------------------------------------------------------------------------

    async def write_status(self, patch: dict[str, Any]) -> None:
        """Patch the status. Raises Conflict if the resource has changed since it was read.

        A status made from an old spec must not overwrite that of a newer one.
        """
        body = {
            "metadata": {"resourceVersion": self.stored.resource_version, "uid": self.stored.uid},
            "status": patch,
        }
        try:
            await self._patch(body, subresource="status")
        except NotFound:
            return  # deleted in the meantime: nothing is left to read it

    async def add_finalizer(self, finalizer: str) -> None:
        """Add a finalizer, before anything is made that it would have to clean up.

        Do nothing if it is there.
        """
        if finalizer in self.stored.finalizers:
            return
        try:
            await self._patch(_patch_to_add(self.stored, finalizer), type="json")
        except Invalid as error:
            if error.causes:
                raise  # the resource itself breaks its kind's rules, whichever field is written
            raise Conflict(error.status, action=error.action) from error  # what was read is outdated

    async def remove_finalizer(self, finalizer: str) -> None:
        """Remove a finalizer by its position in the list, and never that of another controller."""
        for _ in range(_FINALIZER_ATTEMPTS):
            if finalizer not in self.stored.finalizers:
                return
            try:
                await self._patch(_patch_to_remove(self.stored, finalizer), type="json")
            except NotFound:
                return
            except (Invalid, Conflict) as error:
                if error.causes:
                    raise
                if not await self._reread():  # the list has changed
                    return
            else:
                return
        raise RuntimeError(
            f"finalizer {finalizer} not removed from {self.gvk.kind} {self.key}: its finalizers kept changing"
        )

    async def _patch(self, patch: Any, *, type: PatchType = "merge", subresource: str = "") -> None:  # noqa: A002
        raw = await self.client.patch(
            self.kind,
            self.key.name,
            patch,
            into=bytes,
            type=type,
            namespace=self.key.namespace,
            subresource=subresource,
        )
        stored = self.record(self.gvk, raw)
        if stored is not None:
            self.stored = stored


def _patch_to_add(stored: StoredObject, finalizer: str) -> list[dict[str, Any]]:
    """Return the JSON patch that adds a finalizer, unless the resource has changed since it was read.

    The test protects a later resource of the same name, and a list that another controller has begun in the
    meantime.
    """
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": stored.resource_version}
    if stored.finalizers:
        return [test, {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]
    return [test, {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}]


def _patch_to_remove(stored: StoredObject, finalizer: str) -> list[dict[str, Any]]:
    """Return the JSON patch that removes a finalizer, if the list still has it at the same position."""
    path = f"/metadata/finalizers/{stored.finalizers.index(finalizer)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": stored.uid},
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]

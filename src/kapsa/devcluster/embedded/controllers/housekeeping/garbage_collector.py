"""The garbage collector: deletes objects whose owners are gone.

A dependent is deleted once all its owners are gone. An owner in foreground deletion waits for the dependents
that block it. An owner deleted with the policy Orphan first removes itself from its dependents' references.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, Retry
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange, Stored
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.deletion import FOREGROUND, ORPHAN
from kapsa.devcluster.wire.status_errors import StatusError

ObjectId = tuple[str, str, str]
"""Group, resource, and key of an object."""


class OwnerStates(msgspec.Struct, frozen=True):
    """A dependent's owner references, sorted by the state of the owners."""

    solid: list[dict[str, Any]]
    """References to owners that exist, or that cannot be looked up."""
    dangling: list[dict[str, Any]]
    """References to owners that are gone, or whose name another object has."""
    waiting: list[dict[str, Any]]
    """References to owners in foreground deletion: this dependent is deleted first."""


class GarbageCollector:
    """Controller that follows the owner references of all objects in the store."""

    name = "garbage collector"

    def __init__(self, backend: Backend, client: InProcessClient) -> None:
        self._backend = backend
        self._client = client
        self._owners: dict[ObjectId, tuple[str, ...]] = {}
        self._dependents: dict[str, dict[ObjectId, None]] = {}
        self._waiting: dict[str, ObjectId] = {}
        """Owners in foreground deletion, by uid."""
        self._absent: dict[str, bool] = {}
        """Owners that were deleted and still have dependents: uid to whether they were in a namespace. Their kind may
        be gone by the time a dependent is looked at, with its CRD."""
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Read the owner references of all stored objects."""
        for collection in self._backend.store.collections():
            for stored in collection.current():
                self._index(collection, stored.key, stored.body)

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Index a change. All changes come here, so it inspects bytes before it decodes."""
        key = change.object.key
        if change.type == "DELETED":
            object_id = (*collection.key, key)
            for uid in self._owners.pop(object_id, ()):
                self._unindex(uid, object_id)
                self._enqueue_owner(uid)
            if dependents := self._dependents.get(change.object.uid):
                self._absent[change.object.uid] = "/" in key
                for dependent in dependents:
                    self._enqueue(dependent)
        else:
            self._index(collection, key, change.object.body)

    def _index(self, collection: Collection, key: str, body: bytes) -> None:
        object_id = (*collection.key, key)
        before = self._owners.get(object_id, ())
        ending = b'"deletionTimestamp":"' in body and (b'"foregroundDeletion"' in body or b'"orphan"' in body)
        if b'"ownerReferences":[' not in body and not before:
            if ending:
                self._enqueue(object_id)
            return
        references = decode_references(body)
        after = tuple(dict.fromkeys(reference["uid"] for reference in references))
        if after != before:
            for uid in before:
                self._unindex(uid, object_id)
            for uid in after:
                self._dependents.setdefault(uid, {})[object_id] = None
            if after:
                self._owners[object_id] = after
            else:
                self._owners.pop(object_id, None)
            self._enqueue(object_id)
        elif ending:
            self._enqueue(object_id)
        for uid in before:
            # The change may have unblocked an owner that waits.
            self._enqueue_owner(uid)

    def _unindex(self, uid: str, object_id: ObjectId) -> None:
        dependents = self._dependents.get(uid)
        if dependents is not None:
            dependents.pop(object_id, None)
            if not dependents:
                del self._dependents[uid]
                self._absent.pop(uid, None)

    def _enqueue_owner(self, uid: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._enqueue(waiting)

    def _enqueue(self, object_id: ObjectId) -> None:
        group, resource, key = object_id
        self.queue.add((f"{group}/{resource}", key))

    # -- one object ---------------------------------------------------------------------------------------

    async def _process(self, item: Key) -> None:
        group, _, resource = item[0].partition("/")
        stored = self._backend.store.collection(group, resource).get(item[1])
        info = self._info(group, resource)
        if stored is None or info is None:
            return
        obj = decode(stored)
        finalizers = obj["metadata"].get("finalizers") or ()
        deleting = "deletionTimestamp" in obj["metadata"]
        object_id = (group, resource, item[1])
        if deleting and ORPHAN in finalizers:
            await self._orphan(info, obj)
        elif deleting and FOREGROUND in finalizers:
            await self._finish_foreground(info, obj, object_id)
        if obj["metadata"].get("ownerReferences") and (not deleting or FOREGROUND in finalizers):
            await self._collect(info, obj, object_id)

    async def _collect(self, info: ResourceInfo, obj: Object, object_id: ObjectId) -> None:
        owners = self.classify(info, obj)
        if owners.solid:
            gone = {reference["uid"] for reference in [*owners.dangling, *owners.waiting]}
            if gone:
                await self._drop_references(info, obj, gone)
            return
        if not owners.dangling and not owners.waiting:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if owners.waiting and self._dependents.get(obj["metadata"]["uid"]):
            policy = "Foreground"
        elif ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        else:
            policy = "Background"
        if "deletionTimestamp" not in obj["metadata"]:
            await self._delete(info, obj, policy)

    def classify(self, info: ResourceInfo, obj: Object) -> OwnerStates:
        """Look up the owners of an object."""
        owners = OwnerStates([], [], [])
        for reference in obj["metadata"].get("ownerReferences") or ():
            owner_info = self._owner_info(reference)
            was_namespaced = self._absent.get(reference["uid"])
            if owner_info is None and was_namespaced is not None and (info.namespaced or not was_namespaced):
                owners.dangling.append(reference)
                continue
            if owner_info is None or (owner_info.namespaced and not info.namespaced):
                # The owner cannot be looked up: such an object is never collected.
                owners.solid.append(reference)
                continue
            # References cannot cross namespaces: an owner in another one counts as absent.
            key = owner_info.object_key(obj["metadata"].get("namespace", ""), reference["name"])
            owner = self._backend.collection(owner_info).get(key)
            if owner is None or owner.uid != reference["uid"]:
                owners.dangling.append(reference)
            else:
                (owners.waiting if _waits_for_dependents(owner) else owners.solid).append(reference)
        return owners

    async def _finish_foreground(self, info: ResourceInfo, obj: Object, object_id: ObjectId) -> None:
        uid = obj["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents.get(uid, ())):
            self._enqueue(dependent)
            blocking = blocking or self._blocks(dependent, uid)
        if blocking:
            self._waiting[uid] = object_id
            return
        self._waiting.pop(uid, None)
        await self._drop_finalizer(info, obj, FOREGROUND)

    def _blocks(self, object_id: ObjectId, uid: str) -> bool:
        stored = self._backend.store.collection(object_id[0], object_id[1]).get(object_id[2])
        if stored is None:
            return False
        references = decode_references(stored.body)
        return any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in references)

    async def _orphan(self, info: ResourceInfo, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for group, resource, key in list(self._dependents.get(uid, ())):
            stored = self._backend.store.collection(group, resource).get(key)
            dependent_info = self._info(group, resource)
            if stored is not None and dependent_info is not None:
                await self._drop_references(dependent_info, decode(stored), {uid})
        await self._drop_finalizer(info, obj, ORPHAN)

    # -- writes -------------------------------------------------------------------------------------------

    async def _delete(self, info: ResourceInfo, obj: Object, policy: str) -> None:
        metadata = obj["metadata"]
        try:
            await self._client.delete(
                info, metadata.get("namespace", ""), metadata["name"], uid=metadata["uid"], propagation=policy
            )
        except StatusError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise

    async def _drop_references(self, info: ResourceInfo, obj: Object, uids: set[str]) -> None:
        metadata = obj["metadata"]
        left = [r for r in metadata.get("ownerReferences") or () if r["uid"] not in uids]
        metadata["ownerReferences"] = left
        await self._update(info, obj)

    async def _drop_finalizer(self, info: ResourceInfo, obj: Object, finalizer: str) -> None:
        metadata = obj["metadata"]
        metadata["finalizers"] = [f for f in metadata.get("finalizers") or () if f != finalizer]
        await self._update(info, obj)

    async def _update(self, info: ResourceInfo, obj: Object) -> None:
        try:
            await self._client.update(info, obj)
        except StatusError as error:
            if error.reason == "Conflict":
                raise Retry from None
            if error.reason != "NotFound":
                raise

    def _info(self, group: str, resource: str) -> ResourceInfo | None:
        versions = self._backend.registry.versions_of(group, resource)
        stored = [info for info in versions if info.version == (info.storage_version or info.version)]
        return next(iter(stored or versions), None)

    def _owner_info(self, reference: dict[str, Any]) -> ResourceInfo | None:
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        return self._backend.registry.find_kind(group, version, reference.get("kind", ""))


class _Metadata(msgspec.Struct):
    ownerReferences: list[dict[str, Any]] = []  # noqa: N815  the name of the field


class _Object(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


def decode_references(body: bytes) -> list[dict[str, Any]]:
    """Decode the owner references of an object, and nothing else."""
    return _decoder.decode(body).metadata.ownerReferences


def _waits_for_dependents(owner: Stored) -> bool:
    if b'"deletionTimestamp":"' not in owner.body or b'"foregroundDeletion"' not in owner.body:
        return False
    metadata = decode(owner)["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())

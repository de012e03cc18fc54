"""The garbage collector: what owner references mean when owners go.

A dependent whose every owner is gone is deleted. An owner deleted in the foreground waits for the dependents that
block it; one deleted with `orphan` lets them go first.
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
from kapsa.devcluster.embedded.verbs.client import Verbs
from kapsa.devcluster.embedded.verbs.deletion import FOREGROUND, ORPHAN
from kapsa.devcluster.wire.status_errors import StatusError

Place = tuple[str, str, str]
"""Group, resource, and key of an object."""


class OwnerStates(msgspec.Struct, frozen=True):
    """A dependent's owner references, sorted by what became of the owners."""

    solid: list[dict[str, Any]]
    """The owner is there (or nobody can tell)."""
    dangling: list[dict[str, Any]]
    """The owner is gone, or another object has its name."""
    waiting: list[dict[str, Any]]
    """The owner is in foreground deletion: this dependent goes first."""


class GarbageCollector:
    """Follows the owner references of everything in the store."""

    name = "garbage collector"

    def __init__(self, backend: Backend, verbs: Verbs) -> None:
        self._backend = backend
        self._verbs = verbs
        self._owners: dict[Place, tuple[str, ...]] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._waiting: dict[str, Place] = {}
        """Owners in foreground deletion, by uid."""
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        for collection in self._backend.store.collections():
            for stored in collection.current():
                self._learn(collection, stored.key, stored.body)

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Called for every change of every resource, so it looks at bytes before it decodes any."""
        key = change.object.key
        if change.type == "DELETED":
            place = (*collection.key, key)
            for uid in self._owners.pop(place, ()):
                self._forget(uid, place)
                self._revisit_owner(uid)
            for dependent in self._dependents.get(change.object.uid, ()):
                self._enqueue(dependent)
        else:
            self._learn(collection, key, change.object.body)

    def _learn(self, collection: Collection, key: str, body: bytes) -> None:
        place = (*collection.key, key)
        before = self._owners.get(place, ())
        ending = b'"deletionTimestamp":"' in body and (b'"foregroundDeletion"' in body or b'"orphan"' in body)
        if b'"ownerReferences":[' not in body and not before:
            if ending:
                self._enqueue(place)
            return
        references = decode_references(body)
        after = tuple(dict.fromkeys(reference["uid"] for reference in references))
        if after != before:
            for uid in before:
                self._forget(uid, place)
            for uid in after:
                self._dependents.setdefault(uid, {})[place] = None
            if after:
                self._owners[place] = after
            else:
                self._owners.pop(place, None)
            self._enqueue(place)
        elif ending:
            self._enqueue(place)
        for uid in before:
            # It may have stopped blocking an owner that waits.
            self._revisit_owner(uid)

    def _forget(self, uid: str, place: Place) -> None:
        dependents = self._dependents.get(uid)
        if dependents is not None:
            dependents.pop(place, None)
            if not dependents:
                del self._dependents[uid]

    def _revisit_owner(self, uid: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._enqueue(waiting)

    def _enqueue(self, place: Place) -> None:
        group, resource, key = place
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
        place = (group, resource, item[1])
        if deleting and ORPHAN in finalizers:
            await self._orphan(info, obj)
        elif deleting and FOREGROUND in finalizers:
            await self._finish_foreground(info, obj, place)
        if obj["metadata"].get("ownerReferences") and (not deleting or FOREGROUND in finalizers):
            await self._judge(info, obj, place)

    async def _judge(self, info: ResourceInfo, obj: Object, place: Place) -> None:
        verdict = self.classify(info, obj)
        if verdict.solid:
            gone = {reference["uid"] for reference in [*verdict.dangling, *verdict.waiting]}
            if gone:
                await self._drop_references(info, obj, gone)
            return
        if not verdict.dangling and not verdict.waiting:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if verdict.waiting and self._dependents.get(obj["metadata"]["uid"]):
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
        """Look up every owner of an object."""
        verdict = OwnerStates([], [], [])
        for reference in obj["metadata"].get("ownerReferences") or ():
            owner_info = self._owner_info(reference)
            if owner_info is None or (owner_info.namespaced and not info.namespaced):
                # Nobody can look it up: such an object is never collected.
                verdict.solid.append(reference)
                continue
            # A reference cannot cross namespaces: an owner elsewhere is an owner that is not there.
            key = owner_info.object_key(obj["metadata"].get("namespace", ""), reference["name"])
            owner = self._backend.collection(owner_info).get(key)
            if owner is None or owner.uid != reference["uid"]:
                verdict.dangling.append(reference)
            else:
                (verdict.waiting if _waits_for_dependents(owner) else verdict.solid).append(reference)
        return verdict

    async def _finish_foreground(self, info: ResourceInfo, obj: Object, place: Place) -> None:
        uid = obj["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents.get(uid, ())):
            self._enqueue(dependent)
            blocking = blocking or self._blocks(dependent, uid)
        if blocking:
            self._waiting[uid] = place
            return
        self._waiting.pop(uid, None)
        await self._drop_finalizer(info, obj, FOREGROUND)

    def _blocks(self, place: Place, uid: str) -> bool:
        stored = self._backend.store.collection(place[0], place[1]).get(place[2])
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
            await self._verbs.delete(
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
            await self._verbs.update(info, obj)
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
    ownerReferences: list[dict[str, Any]] = []  # noqa: N815  the field's own name


class _Object(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


def decode_references(body: bytes) -> list[dict[str, Any]]:
    """The owner references of an encoded object, without decoding the rest."""
    return _decoder.decode(body).metadata.ownerReferences


def _waits_for_dependents(owner: Stored) -> bool:
    if b'"deletionTimestamp":"' not in owner.body or b'"foregroundDeletion"' not in owner.body:
        return False
    metadata = decode(owner)["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())

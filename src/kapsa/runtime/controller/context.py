"""The context of one reconcile: reading from the cache, applying children, status, conditions, events.

Reads come from the cache and see every write made here before. Writes go through a client whose gate is closed once
this process may no longer write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import msgspec
import structlog

from kapsa.runtime.cache.store import Key, StoredObject
from kapsa.runtime.client.client import Client, PatchType, Propagation
from kapsa.runtime.controller._child_manifest import manifest_of, owner_reference, uid_of
from kapsa.runtime.controller.controller import TerminalError
from kapsa.runtime.controller.events import ObjectReference
from kapsa.runtime.controller.workqueue import Reason
from kapsa.runtime.errors import Conflict, NotFound
from kapsa.runtime.resources.conditions import ConditionStatus
from kapsa.runtime.resources.identity import identity_of
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import LabelSelector
from kapsa.runtime.resources.stored_object import read_as

if TYPE_CHECKING:
    from kapsa.runtime.controller.reconciler import Reconciler

__all__ = ["Context", "NotOursError", "OutdatedError"]

R = TypeVar("R", covariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class NotOursError(TerminalError):
    """An object that we would have to take from its owner is in the way."""


class OutdatedError(Exception):
    """The resource has changed since what this run was given: what it wants may be wanted no longer."""


class HasStatus(Protocol[S_co]):
    """A resource whose class says what its status is."""

    def draft_status(self) -> S_co: ...


class Context(Generic[R]):
    """What a reconcile may use. Made for one run of one resource."""

    __slots__ = (
        "_confirmed",
        "_draft",
        "_log",
        "_reconciler",
        "client",
        "key",
        "own_writes",
        "reasons",
        "resource",
        "stored",
    )

    def __init__(
        self, reconciler: Reconciler, stored: StoredObject, resource: R, reasons: Iterable[Reason] = ()
    ) -> None:
        self.resource = resource
        """The resource as it was when this run began."""
        self.stored = stored
        self.key = stored.key
        self.client: Client = reconciler.client
        """The client, for what the context does not offer. It asks the server every time."""
        self.reasons = tuple(reasons)
        """Why this run happens."""
        self.own_writes: set[tuple[str, str]] = set()
        """UID and version of what this run wrote: being told of it by the watch is no news."""
        self._reconciler = reconciler
        self._draft: Any = None
        self._confirmed = False
        self._log: Any = None

    # -- knowing -----------------------------------------------------------------------------------------------

    @property
    def log(self) -> Any:
        """A logger that says which controller and resource it is about."""
        if self._log is None:
            self._log = structlog.get_logger("kapsa.controller").bind(
                controller=self._reconciler.controller.name, namespace=self.key.namespace, name=self.key.name
            )
        return self._log

    @property
    def failures(self) -> int:
        """How often this resource failed in a row before this run."""
        return self._reconciler.queue.failures(self.key)

    def now(self) -> datetime:
        """The time on the operator's clock."""
        return self._reconciler.clock.now()

    @overload
    def get(self, kind: type[T], name: str, *, namespace: str | None = None) -> T | None: ...
    @overload
    def get(self, kind: str, name: str, *, namespace: str | None = None) -> dict[str, Any] | None: ...
    def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> Any:
        """One object from the cache; None if there is none. In the resource's own namespace unless told."""
        place = self.key.namespace if namespace is None else namespace
        gvk = kind_of(kind)
        found = self._reconciler.cache.get(gvk, Key(place, name))
        if found is None and place and namespace is None:
            found = self._reconciler.cache.get(gvk, Key("", name))  # a cluster-scoped kind
        return None if found is None else read_as(found, kind)

    @overload
    def list(
        self, kind: type[T], *, namespace: str | None = None, labels: LabelSelector = None
    ) -> Sequence[T]: ...
    @overload
    def list(
        self, kind: str, *, namespace: str | None = None, labels: LabelSelector = None
    ) -> Sequence[dict[str, Any]]: ...
    def list(self, kind: Kind, *, namespace: str | None = None, labels: LabelSelector = None) -> Any:
        """Objects from the cache: in the resource's namespace, in another, or in all of them with namespace=""."""
        place = self.key.namespace if namespace is None else namespace
        found = self._reconciler.cache.select(kind_of(kind), namespace=place, labels=labels)
        return [read_as(each, kind) for each in sorted(found, key=_by_key)]

    @overload
    def find(self, kind: type[T], index: str, value: Hashable) -> Sequence[T]: ...
    @overload
    def find(self, kind: str, index: str, value: Hashable) -> Sequence[dict[str, Any]]: ...
    def find(self, kind: Kind, index: str, value: Hashable) -> Any:
        """The objects, in all namespaces, that an index of the kind's controller files under a value."""
        found = self._reconciler.cache.by_index(kind, index, value)
        return [read_as(each, kind) for each in sorted(found, key=_by_key)]

    @overload
    def children(self, kind: type[T], *, labels: LabelSelector = None) -> Sequence[T]: ...
    @overload
    def children(self, kind: str, *, labels: LabelSelector = None) -> Sequence[dict[str, Any]]: ...
    def children(self, kind: Kind, *, labels: LabelSelector = None) -> Any:
        """The objects of a kind that this resource owns, from the cache."""
        found = self._reconciler.cache.select(kind_of(kind), owner=self.stored.uid, labels=labels)
        return [read_as(each, kind) for each in sorted(found, key=_by_key)]

    # -- children ----------------------------------------------------------------------------------------------

    async def apply(
        self,
        child: Any,
        *,
        owner: bool = True,
        force: bool = True,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Make the cluster have this object, by server-side apply; returns it as the cluster has it.

        `child` is a dict, YAML text, a resource or a struct, and holds the fields that matter to you and no others:
        a field left out later is removed. It goes to the resource's namespace unless it says another, and gets an
        owner reference unless `owner=False`. Nothing is sent while neither the child nor these fields on the server
        have changed. Somebody else's change to them is put back and reported with that manager's name; with
        `force=False` it raises Conflict instead.
        """
        gvk, key, desired = await self._desired(child, owner)
        reconciler = self._reconciler
        if owner:
            self._check_owner(gvk, key)
        manager = field_manager or reconciler.applier.manager
        applied = await reconciler.applier.apply(
            *(self.client, gvk, key, desired),
            force=force,
            manager=manager,
            before_change=lambda live: self._confirm(live, gvk, key),
        )
        found = applied.object
        metadata = found["metadata"]
        if applied.changed and reconciler.cache.watches(gvk):
            self.own_writes.add((metadata["uid"], metadata["resourceVersion"]))
        if applied.drift is not None:
            reconciler.metrics.drifted(gvk.kind)
            self.log.warning("drift corrected", drift=str(applied.drift))
            await self.event("Warning", "DriftCorrected", str(applied.drift), action="Apply")
        return found

    async def create(self, child: Any, *, owner: bool = True) -> dict[str, Any]:
        """Create an object that must not be there yet; AlreadyExists if it is. Prefer `apply`."""
        gvk, key, desired = await self._desired(child, owner, named=False)
        made: dict[str, Any] = await self.client.create(desired, namespace=key.namespace)
        self._noted(gvk, _encode(made))
        return made

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002 - kubectl's own word
        subresource: str = "",
    ) -> dict[str, Any]:
        """Change part of an object; returns it as the cluster has it."""
        place = self.key.namespace if namespace is None else namespace
        raw = await self.client.patch(
            kind, name, patch, into=bytes, type=type, namespace=place, subresource=subresource
        )
        if subresource != "scale":
            self._noted(kind_of(kind), raw)
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    async def delete(
        self,
        target: Any,
        name: str | None = None,
        *,
        namespace: str | None = None,
        propagation: Propagation = "Background",
    ) -> bool:
        """Delete an object: `delete(child)` or `delete("v1/Service", name)`. False if it is not there.

        Only the very object that was read is deleted: if another one has taken its name since, nothing happens.
        """
        if name is None:
            identity = identity_of(target)
            kind, name, place = identity.kind, identity.name, identity.namespace or self.key.namespace
            uid = uid_of(target)
        else:
            kind, place, uid = target, self.key.namespace if namespace is None else namespace, ""
        gvk = kind_of(kind)
        if any(
            not owned.deletes and kind_of(owned.kind) == gvk for owned in self._reconciler.controller.owned
        ):
            raise TypeError(
                f"{type(self._reconciler.controller).__name__} declares that it deletes no {gvk.kind}: "
                f"write Owns({str(gvk)!r}, deletes=True) in its owns"
            )
        if not uid:
            cached = self._reconciler.cache.get(gvk, Key(place, name)) or self._reconciler.cache.get(
                gvk, Key("", name)
            )
            if cached is None:
                return False
            uid, place = cached.uid, cached.namespace
        if self._reconciler.cache.watches(gvk):
            known = self._reconciler.cache.get(gvk, Key(place, name))
            if known is not None:
                await self._confirm(known, gvk, known.key)
        try:
            left = await self.client.delete_object(
                kind, name, namespace=place, uid=uid, propagation=propagation
            )
        except (NotFound, Conflict):  # gone, or its name belongs to another object by now
            self._reconciler.cache.note_delete(gvk, Key(place, name), uid)
            return False
        if left is None:
            self._reconciler.cache.note_delete(gvk, Key(place, name), uid)
        else:
            self._noted(gvk, _encode(left))
        return True

    # -- status ------------------------------------------------------------------------------------------------

    @property
    def status(self: Context[HasStatus[S]]) -> S:
        """The status to be: change it freely. One write follows after the run, if it differs from what is there."""
        draft: S = self._open_draft()
        return draft

    @property
    def draft(self) -> Any:
        """The status if anybody asked for it, else None."""
        return self._draft

    def condition(
        self,
        type: str,  # noqa: A002 - the condition's own name
        status: bool | ConditionStatus | None,
        *,
        reason: str,
        message: str = "",
    ) -> None:
        """Set a condition of the status. Its transition time moves only when its status does."""
        self._open_draft().set_condition(
            type,
            status,
            reason=reason,
            message=message,
            now=self.now(),
            observed_generation=self.stored.generation or None,
        )

    # -- telling -----------------------------------------------------------------------------------------------

    async def event(
        self,
        type: str,  # noqa: A002 - the event's own word
        reason: str,
        note: str,
        *,
        action: str = "Reconcile",
        related: ObjectReference | None = None,
    ) -> None:
        """Tell people what happened, with an Event on the resource. It never fails or delays the run."""
        self._reconciler.recorder.event(
            self._reconciler.reference(self.stored), type, reason, note, action=action, related=related
        )

    # -- inside ------------------------------------------------------------------------------------------------

    def _open_draft(self) -> Any:
        if self._draft is None:
            if not isinstance(self.resource, CustomResource):
                raise TypeError(
                    f"{self._reconciler.controller.gvk} has no status class; write its status with ctx.patch(..., "
                    "subresource='status')"
                )
            self._draft = self.resource.draft_status()
        return self._draft

    async def _confirm(self, child: StoredObject | None, gvk: GroupVersionKind, place: Key) -> None:
        """Do not undo, after an old wish, what was made after a newer one.

        Watches of two kinds do not run in step. A child that is newer than all we know of its owner may have been
        made from a spec that we have not seen, and one that has just gone may have gone with its owner; then the
        server is asked for the owner, once in a run. A deletion is never taken back, so there it does not matter.
        """
        if self._confirmed or self.stored.deletion_timestamp is not None:
            return
        if child is None:
            doubtful = Reason("Deleted", gvk.kind, *place) in self.reasons
        else:
            doubtful = child.version > max(self.stored.version, self._reconciler.told_up_to())
        if doubtful:
            await self._reconciler.run.check_current(self)
            self._confirmed = True

    def _noted(self, gvk: GroupVersionKind, raw: bytes) -> None:
        """Let all readers see what we wrote, and know its echo when the watch brings it."""
        stored = self._reconciler.cache.note_write(gvk, raw)
        if stored is None or (stored.uid == self.stored.uid and stored.deletion_timestamp is not None):
            return  # that the resource deleted itself is news: finalize() comes next
        self.own_writes.add((stored.uid, stored.resource_version))

    async def _desired(
        self, child: Any, owner: bool, *, named: bool = True
    ) -> tuple[GroupVersionKind, Key, dict[str, Any]]:
        desired = manifest_of(child)
        gvk = GroupVersionKind.of(desired)
        metadata = dict(desired.get("metadata") or {})
        if named and not metadata.get("name"):
            raise ValueError(f"a {gvk.kind} to apply needs metadata.name")
        namespaced = await self._reconciler.is_namespaced(gvk)
        if not namespaced:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            if not self.key.namespace:
                raise ValueError(
                    f"{gvk.kind} {metadata.get('name')} needs metadata.namespace: its owner "
                    f"{self._reconciler.controller.gvk.kind} {self.key} is in none that it could take"
                )
            metadata["namespace"] = self.key.namespace
        place = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        if owner:
            metadata["ownerReferences"] = [
                owner_reference(self._reconciler.controller.gvk, self.stored, gvk, place)
            ]
        desired["metadata"] = metadata
        return gvk, place, desired

    def _check_owner(self, gvk: GroupVersionKind, place: Key) -> None:
        cache = self._reconciler.cache
        live = cache.get(gvk, place) if cache.watches(gvk) else None
        if live is None or live.deletion_timestamp is not None:
            return
        other = live.controller
        if other is not None and other.uid != self.stored.uid:
            raise NotOursError(
                f"{gvk.kind} {place} is controlled by {other.kind} {other.name}: choose another name, or delete it first"
            )


def _by_key(stored: StoredObject) -> Key:
    return stored.key

"""The context of one reconcile: reading from the cache, applying children, status, conditions, events.

Reads come from the cache and see every write that this run made before. Writes go through a client that
rejects them once this process may no longer write.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from kapsa.runtime.client.client import Client, PatchType, Propagation
from kapsa.runtime.controller._primary import Primary
from kapsa.runtime.controller.apply._child_manifest import uid_of
from kapsa.runtime.controller.apply._field_ownership import extracted, parse_fields
from kapsa.runtime.controller.events import ObjectReference
from kapsa.runtime.controller.outcomes import NotOursError, OutdatedError
from kapsa.runtime.controller.services import Services
from kapsa.runtime.controller.work.workqueue import Reason
from kapsa.runtime.errors import Conflict, NotFound
from kapsa.runtime.resources.conditions import ConditionStatus
from kapsa.runtime.resources.identity import identity_of
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.merge_patch import changes
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.model import encode_json
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.selector import LabelSelector
from kapsa.runtime.resources.stored_object import Key, StoredObject, read_as

__all__ = ["Context"]

R = TypeVar("R", covariant=True)
_IDENTITY = ("name", "namespace")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class HasStatus(Protocol[S_co]):
    """A resource whose class declares its status."""

    def draft_status(self) -> S_co: ...


class Context(Generic[R]):
    """The tools of one run of one resource."""

    __slots__ = ("_draft", "_log", "_primary", "_services", "client", "key", "resource")

    def __init__(self, services: Services, primary: Primary, resource: R) -> None:
        self.resource = resource
        """The resource as it was when this run began."""
        self.key = primary.key
        self.client: Client = primary.client
        """The client, for what the context does not offer. Each call is a request to the server."""
        self._services = services
        self._primary = primary
        self._draft: Any = None
        self._log: FilteringBoundLogger | None = None

    # -- the run ---------------------------------------------------------------------------------------------

    @property
    def stored(self) -> StoredObject:
        """The resource as this run last read or wrote it, as the cache keeps it."""
        return self._primary.stored

    @property
    def cluster(self) -> str:
        """The name of the resource's cluster; empty for an operator of one cluster."""
        return self._services.cluster

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for this run."""
        return self._primary.reasons

    @property
    def failures(self) -> int:
        """Failures of this resource in a row before this run."""
        return self._primary.failures

    @property
    def log(self) -> FilteringBoundLogger:
        """A logger that is bound to the controller and the resource."""
        if self._log is None:
            log: FilteringBoundLogger = structlog.get_logger("kapsa.controller").bind(
                controller=self._services.declared.name, namespace=self.key.namespace, name=self.key.name
            )
            self._log = log.bind(cluster=self.cluster) if self.cluster else log
        return self._log

    def now(self) -> datetime:
        """Return the time on the operator's clock."""
        return self.client.clock.now()

    # -- reading ---------------------------------------------------------------------------------------------

    @overload
    def get(
        self, kind: type[T], name: str, *, namespace: str | None = None, track: bool = False
    ) -> T | None: ...
    @overload
    def get(
        self, kind: str, name: str, *, namespace: str | None = None, track: bool = False
    ) -> dict[str, Any] | None: ...
    def get(self, kind: Kind, name: str, *, namespace: str | None = None, track: bool = False) -> Any:
        """Return one object from the cache; None if there is none. In the resource's namespace unless set.

        With `track`, a change of the object runs this resource again, also if it does not exist yet. Its kind
        must be declared in the controller's watches.
        """
        gvk = kind_of(kind)
        cache = self._services.cache
        key = Key(self.key.namespace if namespace is None else namespace, name)
        if track:
            self._subscribe(gvk, key)
        scopes = self._services.scopes(gvk)
        stored = cache.get(gvk, key, scopes=scopes)
        if stored is None and key.namespace and namespace is None:  # the kind may be cluster-scoped
            key = Key("", name)
            if track:
                self._subscribe(gvk, key)
            stored = cache.get(gvk, key, scopes=scopes)
        return None if stored is None else read_as(stored, kind)

    def track(self, kind: Kind, name: str, *, namespace: str) -> None:
        """Run this resource again when an object changes, appears or disappears.

        For an object that is read with `client`. The namespace of a cluster-scoped object is "".
        """
        self._subscribe(kind_of(kind), Key(namespace, name))

    async def watch(self, kind: Kind) -> None:
        """Watch a kind that the controller does not declare, and wait until its objects can be read.

        For kinds that are known only when a resource names them. From then on `get` and `list` read it, and with
        `track=True` its changes run this resource again. The watch stays until the process ends; a controller may add
        100. A kind that is not served counts as having no objects. The operator needs the right to watch it.
        """
        await self._services.runtime_watches.add(kind)

    @overload
    def list(
        self, kind: type[T], *, namespace: str | None = None, labels: LabelSelector = None
    ) -> Sequence[T]: ...
    @overload
    def list(
        self, kind: str, *, namespace: str | None = None, labels: LabelSelector = None
    ) -> Sequence[dict[str, Any]]: ...
    def list(self, kind: Kind, *, namespace: str | None = None, labels: LabelSelector = None) -> Any:
        """Return objects from the cache, of the resource's namespace unless set; of all with namespace="".

        They are the objects that this controller declares: another controller's watch of the same kind with other
        labels adds none. If it declares the kind twice, they are the objects of both.
        """
        gvk = kind_of(kind)
        selected = self._services.cache.select(
            gvk,
            namespace=self.key.namespace if namespace is None else namespace,
            labels=labels,
            scopes=self._services.scopes(gvk),
        )
        return [read_as(each, kind) for each in sorted(selected, key=_by_key)]

    @overload
    def find(self, kind: type[T], index: str, value: Hashable) -> Sequence[T]: ...
    @overload
    def find(self, kind: str, index: str, value: Hashable) -> Sequence[dict[str, Any]]: ...
    def find(self, kind: Kind, index: str, value: Hashable) -> Any:
        """Return the objects, of all namespaces, that a declared index has under a value."""
        selected = self._services.cache.by_index(kind, index, value)
        return [read_as(each, kind) for each in sorted(selected, key=_by_key)]

    @overload
    def children(self, kind: type[T], *, labels: LabelSelector = None) -> Sequence[T]: ...
    @overload
    def children(self, kind: str, *, labels: LabelSelector = None) -> Sequence[dict[str, Any]]: ...
    def children(self, kind: Kind, *, labels: LabelSelector = None) -> Any:
        """Return the objects of a kind that this resource owns, from the cache."""
        gvk = kind_of(kind)
        scopes = self._services.scopes(gvk)
        selected = self._services.cache.select(gvk, owner=self.stored.uid, labels=labels, scopes=scopes)
        return [read_as(each, kind) for each in sorted(selected, key=_by_key)]

    # -- children --------------------------------------------------------------------------------------------

    async def apply(
        self,
        child: Any,
        *,
        owner: bool = True,
        force: bool = True,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Make the cluster have this object, by server-side apply; return it as the cluster has it.

        `child` is a dict, YAML text, a resource or a struct, and holds the fields that you manage and no
        others: a field left out later is removed. It goes to the resource's namespace unless it names
        another, and gets an owner reference unless `owner=False`. Nothing is sent while neither the child nor
        these fields on the server have changed. A change to them by another manager is reverted and reported
        with the manager's name; with `force=False` it raises Conflict instead.
        """
        services = self._services
        gvk, key, desired = await services.children.complete(child, self.stored, owned=owner)
        if owner:
            self._check_controller(gvk, key)
        applied = await services.applier.apply(
            self._primary,
            gvk,
            key,
            desired,
            force=force,
            manager=field_manager or services.applier.manager,
        )
        if applied.drift is not None:
            services.metrics.drifted(gvk.kind)
            self.log.warning("drift corrected", drift=str(applied.drift))
            self.event("Warning", "DriftCorrected", str(applied.drift), action="Apply")
        return applied.object

    def applied(self, kind: Kind, name: str, *, namespace: str | None = None) -> dict[str, Any] | None:
        """Return what this operator applied last to a cached object; None if there is nothing.

        Change a field of it and apply it again, for instance to scale an object whose other fields cannot be computed
        now. The controller must not declare the kind as `metadata_only` or with a `transform`.
        """
        gvk = kind_of(kind)
        self._check_whole(gvk)
        stored = self._cached(gvk, name, self.key.namespace if namespace is None else namespace)
        if stored is None or not stored.owned_fields:
            return None
        live = stored.to_dict()
        owned: dict[str, Any] = extracted(parse_fields(stored.owned_fields), live)
        identity = {field: live["metadata"][field] for field in _IDENTITY if field in live["metadata"]}
        return {
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            **owned,
            "metadata": {**identity, **owned.get("metadata", {})},
        }

    async def create(self, child: Any, *, owner: bool = True) -> dict[str, Any]:
        """Create an object that must not exist yet; AlreadyExists if it does. Prefer `apply`."""
        gvk, key, desired = await self._services.children.complete(
            child, self.stored, owned=owner, named=False
        )
        created: dict[str, Any] = await self.client.create(desired, namespace=key.namespace)
        self._primary.record(gvk, encode_json(created))
        return created

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
        """Change part of an object; return it as the cluster has it."""
        gvk = kind_of(kind)
        namespace = self.key.namespace if namespace is None else namespace
        cached = self._cached(gvk, name, namespace)
        raw = await self.client.patch(
            kind, name, patch, into=bytes, type=type, namespace=namespace, subresource=subresource
        )
        if subresource != "scale":
            redundant = type != "json" and cached is not None and not changes(patch, cached.to_dict())
            self._primary.record(gvk, raw, replaced=cached, redundant=redundant)
        patched: dict[str, Any] = msgspec.json.decode(raw)
        return patched

    async def delete(
        self,
        target: Any,
        name: str | None = None,
        *,
        namespace: str | None = None,
        propagation: Propagation = "Background",
    ) -> bool:
        """Delete an object: `delete(child)` or `delete("v1/Service", name)`.

        Return False if it does not exist. Only the very object that was read is deleted: if another one has
        taken its name since, nothing happens.
        """
        if name is None:
            identity = identity_of(target)
            kind, name, uid = identity.kind, identity.name, uid_of(target)
            namespace = identity.namespace or self.key.namespace
        else:
            kind, uid = target, ""
            namespace = self.key.namespace if namespace is None else namespace
        gvk = kind_of(kind)
        self._check_deletes(gvk)
        cache = self._services.cache
        if not uid:
            cached = cache.get(gvk, Key(namespace, name)) or cache.get(gvk, Key("", name))
            if cached is None:
                return False
            uid, namespace = cached.uid, cached.namespace
        key = Key(namespace, name)
        live = cache.get(gvk, key) if cache.watches(gvk) else None
        if live is not None:
            await self._primary.confirm(live, gvk, key)
        try:
            left = await self.client.delete_object(
                kind, name, namespace=namespace, uid=uid, propagation=propagation
            )
        except (NotFound, Conflict) as error:
            if isinstance(error, Conflict) and not _has_another_uid(error):
                raise  # it is still there: refused by a webhook, for instance
            self._primary.record_delete(gvk, key, uid)
            return False
        if left is None:
            self._primary.record_delete(gvk, key, uid)
        else:
            redundant = live is not None and live.deletion_timestamp is not None
            self._primary.record(gvk, encode_json(left), replaced=live, redundant=redundant)
        return True

    # -- status ----------------------------------------------------------------------------------------------

    @property
    def status(self: Context[HasStatus[S]]) -> S:
        """The desired status: change it freely.

        One write follows after the run if it differs from the current one.
        """
        draft: S = self._open_draft()
        return draft

    @property
    def draft(self) -> Any:
        """The status if the run has used it, else None."""
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

    # -- events ----------------------------------------------------------------------------------------------

    def event(
        self,
        type: str,  # noqa: A002 - the event's own word
        reason: str,
        note: str,
        *,
        action: str = "Reconcile",
        related: ObjectReference | None = None,
        regarding: ObjectReference | None = None,
    ) -> None:
        """Record an Event on the resource, or on the object it is `regarding`, for people.

        It is sent in the background and never fails the run.
        """
        self._services.recorder.event(
            regarding or ObjectReference.of(self._services.declared.gvk, self.stored),
            type,
            reason,
            note,
            action=action,
            related=related,
        )

    # -- internals -------------------------------------------------------------------------------------------

    def _cached(self, gvk: GroupVersionKind, name: str, namespace: str) -> StoredObject | None:
        cache = self._services.cache
        if not cache.watches(gvk):
            return None
        scopes = self._services.scopes(gvk)
        return cache.get(gvk, Key(namespace, name), scopes=scopes) or cache.get(
            gvk, Key("", name), scopes=scopes
        )

    def _check_whole(self, gvk: GroupVersionKind) -> None:
        services = self._services
        if not services.cache.keeps_all_of(gvk, scopes=services.scopes(gvk)):
            raise TypeError(
                f"{services.declared.title} has only part of each {gvk.kind} in its cache: to apply it again would "
                "remove the rest. Declare the kind without metadata_only and transform"
            )

    def _subscribe(self, gvk: GroupVersionKind, key: Key) -> None:
        declared = self._services.declared
        if gvk not in declared.trackable and gvk not in self._services.runtime_watches:
            raise TypeError(
                f"{declared.title} cannot track {gvk}: declare Watch({str(gvk)!r}) in its watches, or call ctx.watch"
            )
        self._services.subscriptions.add(self.key, gvk, key)

    def _open_draft(self) -> Any:
        if self._draft is None:
            if not isinstance(self.resource, CustomResource):
                raise TypeError(
                    f"{self._services.declared.gvk} has no status class: write its status with ctx.patch(..., "
                    "subresource='status')"
                )
            self._draft = self.resource.draft_status()
        return self._draft

    def _check_deletes(self, gvk: GroupVersionKind) -> None:
        declared = self._services.declared
        if gvk in declared.kept:
            raise TypeError(
                f"{declared.title} declares that it does not delete {gvk.kind}: write "
                f"Owns({str(gvk)!r}, deletes=True) in its owns"
            )

    def _check_controller(self, gvk: GroupVersionKind, key: Key) -> None:
        cache = self._services.cache
        live = cache.get(gvk, key) if cache.watches(gvk) else None
        if live is None or live.deletion_timestamp is not None:
            return
        other = live.controller
        if other is None or other.uid == self.stored.uid:
            return
        own = self._primary.gvk
        if (other.group, other.kind, other.name) == (own.group, own.kind, self.stored.name):
            raise OutdatedError(
                f"{gvk.kind} {key} belongs to the deleted {own.kind} of the same name until it is garbage-collected"
            )
        raise NotOursError(
            f"{gvk.kind} {key} is controlled by {other.kind} {other.name}: choose another name, or delete it first"
        )


def _has_another_uid(refused: Conflict) -> bool:
    """Return whether a delete was refused because another object has the name by now."""
    return any(part in refused.message for part in ("UID in precondition", "UID in the precondition"))


def _by_key(stored: StoredObject) -> Key:
    return stored.key

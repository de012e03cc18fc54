"""Custom resources: a definition becomes a served resource, and its deletion deletes the objects.

What the real server does in several controllers (naming, establishing, finalizing) happens here right after a
CustomResourceDefinition is stored and before its write is answered, so a definition is served at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.webhook_client import WebhookClient
from kapsa.devcluster.embedded.apply.field_manager import track_update
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.custom.conversion import converter_of
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, Subresource
from kapsa.devcluster.embedded.kinds.versions import version_priority
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange, Stored
from kapsa.devcluster.embedded.strategies.custom.definition_names import CLEANUP, accept_names, set_condition
from kapsa.devcluster.embedded.verbs.commit import commit, remove, rewrite
from kapsa.devcluster.embedded.verbs.deletion import advance
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.pruning import prune
from kapsa.schemas.schema import Schema

__all__ = ["CustomResources", "resources_of"]

CRD = dict[str, Any]
GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
_STATUS = Subresource(name="status")
_SCALE = Subresource(name="scale", kind="Scale", group="autoscaling", version="v1")
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def resources_of(crd: CRD) -> list[ResourceInfo]:
    """Return the resources of a definition, one for each served version."""
    spec = crd["spec"]
    return [_resource(crd, version) for version in spec["versions"] if version.get("served")]


def _resource(crd: CRD, version: CRD) -> ResourceInfo:
    spec = crd["spec"]
    names = (crd.get("status") or {}).get("acceptedNames") or spec["names"]
    declared = version.get("subresources") or {}
    subresources = (_STATUS,) if declared.get("status") is not None else ()
    if declared.get("scale") is not None:
        subresources = (*subresources, _SCALE)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    return ResourceInfo(
        group=spec["group"],
        version=version["name"],
        resource=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=_VERBS,
        subresources=subresources,
        storage_version=next(each["name"] for each in spec["versions"] if each.get("storage")),
        is_custom=True,
        list_kind=names.get("listKind", ""),
        definition=crd,
        deprecation=_deprecation(spec, version) if version.get("deprecated") else "",
        load_schema=partial(Schema.from_crd, schema),
    )


def _deprecation(spec: CRD, version: CRD) -> str:
    """Return the definition's warning, by default one that names the newest version to use instead."""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    served = [each["name"] for each in spec["versions"] if each.get("served") and not each.get("deprecated")]
    newest = min((*served, name), key=version_priority)
    instead = f"; use {group}/{newest} {kind}" if newest != name else ""
    return f"{group}/{name} {kind} is deprecated{instead}"


class _Served(msgspec.Struct):
    """A definition as it is currently served."""

    spec: CRD
    names: CRD
    terminating: bool
    resources: list[ResourceInfo]


class CustomResources:
    """The custom resources of the registry, kept in line with the definitions in the store."""

    def __init__(self, backend: Backend, client: WebhookClient | None = None) -> None:
        self._backend = backend
        self._client = client or WebhookClient()
        self._info = backend.registry.get(GROUP, "v1", RESOURCE)
        self._served: dict[str, _Served] = {}
        self._collection = backend.collection(self._info)
        self._pending: deque[Callable[[], None]] = deque()
        backend.store.listeners.append(self._changed)
        for stored in self._collection.current(""):
            self._later(partial(self._follow, stored.name))
        self.settle()

    def settle(self) -> None:
        """Carry out the pending work. The server calls it before it replies to a write."""
        while self._pending:
            self._pending.popleft()()

    def _later(self, work: Callable[[], None]) -> None:
        """Defer work to `settle` or to the next iteration of the loop, since listeners must not write."""
        self._pending.append(work)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_soon(self.settle)

    def _changed(self, collection: Collection, change: StoreChange) -> None:
        if collection is self._collection:
            if change.type == "DELETED":
                group = decode(change.object)["spec"]["group"]
                self._withdraw(change.object.name)
                self._later(partial(self._reconsider_names, group))
            else:
                self._later(partial(self._follow, change.object.name))
        elif change.type == "DELETED" and any(served.terminating for served in self._served.values()):
            self._later(partial(self._finish_termination, collection))

    def _follow(self, name: str) -> None:
        """Take the next step for a definition. A step stores it, which leads here again."""
        stored = self._collection.get(name)
        if stored is None:
            return
        crd = decode(stored)
        if self._accept_names(crd, stored) or self._establish(crd, stored):
            return
        if _condition(crd, "Established") == "True":
            self._serve(crd)
        if crd["metadata"].get("deletionTimestamp"):
            self._terminate(crd, stored)

    def _accept_names(self, crd: CRD, stored: Stored) -> bool:
        others = [decode(each) for each in self._collection.current("") if each.name != stored.name]
        changed = accept_names(crd, others, self._backend.now())
        if changed is None:
            return False
        self._write_status(changed, stored)
        self._reconsider_names(crd["spec"]["group"], except_for=stored.name)
        return True

    def _establish(self, crd: CRD, stored: Stored) -> bool:
        if _condition(crd, "NamesAccepted") != "True" or _condition(crd, "Established") == "True":
            return False
        text = "the initial names have been accepted"
        set_condition(crd, "Established", "True", "InitialNamesAccepted", text, self._backend.now())
        self._write_status(crd, stored)
        return True

    def _reconsider_names(self, group: str, except_for: str = "") -> None:
        """Check the other definitions of a group again after a name was taken or released."""
        for stored in list(self._collection.current("")):
            if stored.name != except_for and decode(stored)["spec"]["group"] == group:
                self._later(partial(self._follow, stored.name))

    def _write_status(self, crd: CRD, stored: Stored) -> None:
        tracked = track_update(
            decode(stored),
            crd,
            manager="kube-apiserver",
            schema=self._info.schema,
            subresource="status",
            api_version=self._info.api_version,
            now=self._backend.now(),
        )
        commit(self._backend, self._info, tracked)

    # Serving

    def _serve(self, crd: CRD) -> None:
        name, terminating = crd["metadata"]["name"], bool(crd["metadata"].get("deletionTimestamp"))
        before, names = self._served.get(name), crd["status"]["acceptedNames"]
        if before is not None and (before.spec, before.names, before.terminating) == (
            crd["spec"],
            names,
            terminating,
        ):
            return
        resources = [
            msgspec.structs.replace(info, converter=converter_of(info, self._client, self._backend.new_uid))
            for info in resources_of(crd)
        ]
        registry = self._backend.registry
        kept = {(info.version, info.resource) for info in resources}
        for info in before.resources if before is not None else ():
            if (info.version, info.resource) not in kept:
                registry.remove(info.group, info.version, info.resource)
        for info in resources:
            registry.add(info)
        self._served[name] = _Served(crd["spec"], names, terminating, resources)
        if before is not None and before.spec != crd["spec"]:
            self._renew_objects(resources)

    def _renew_objects(self, resources: list[ResourceInfo]) -> None:
        """Apply a changed schema to the stored objects: set its defaults, drop its unknown fields.

        The real server does so on each read. Here it happens once, also without a new revision or an event.
        """
        for info in resources:
            if info.version != info.storage_version or info.schema is None:
                continue
            by_webhook = info.converter is not None
            for stored in self._backend.collection(info).current():
                obj = decode(stored)
                if by_webhook and obj["apiVersion"] != info.api_version:
                    continue  # stored in an earlier version, which is converted on reads
                obj = apply_defaults(info.schema, prune(info.schema, obj))
                rewrite(self._backend, info, obj, stored.revision)

    def _withdraw(self, name: str) -> None:
        served = self._served.pop(name, None)
        for info in served.resources if served is not None else ():
            self._backend.registry.remove(info.group, info.version, info.resource)

    # Terminating

    def _terminate(self, crd: CRD, stored: Stored) -> None:
        """Delete the objects of a terminating definition, and the definition with the last object."""
        if CLEANUP not in (crd["metadata"].get("finalizers") or ()):
            return
        served = self._served.get(stored.name)
        if served is None:
            text = "resource was never established"
            set_condition(crd, "Terminating", "False", "NeverEstablished", text, self._backend.now())
        else:
            if _reason(crd, "Terminating") == "InstanceDeletionPending":
                text = "CustomResource deletion is in progress"
                set_condition(
                    crd, "Terminating", "True", "InstanceDeletionInProgress", text, self._backend.now()
                )
                self._write_status(crd, stored)
                return
            objects = self._objects(served)
            for obj in objects:
                self._delete_object(served.resources[0], obj)
            if objects:
                return
        self._release(crd, stored)

    def _objects(self, served: _Served) -> list[Stored]:
        if not served.resources:
            return []
        return list(self._backend.collection(served.resources[0]).current(""))

    def _delete_object(self, info: ResourceInfo, stored: Stored) -> None:
        obj = decode(stored)
        if not obj["metadata"].get("deletionTimestamp"):
            deletion = DeleteRequest(info=info, namespace=stored.namespace, name=stored.name)
            advance(self._backend, deletion, obj, stored)

    def _finish_termination(self, collection: Collection) -> None:
        for name, served in list(self._served.items()):
            if not served.terminating or not served.resources or self._objects(served):
                continue
            stored = self._collection.get(name)
            if stored is not None and self._backend.collection(served.resources[0]) is collection:
                self._release(decode(stored), stored)

    def _release(self, crd: CRD, stored: Stored) -> None:
        kept = [finalizer for finalizer in crd["metadata"].get("finalizers") or () if finalizer != CLEANUP]
        if not kept:
            remove(self._backend, self._info, stored)
            return
        crd["metadata"]["finalizers"] = kept
        self._write_status(crd, stored)


def _condition(crd: CRD, type_: str) -> str:
    return _find(crd, type_).get("status", "")


def _reason(crd: CRD, type_: str) -> str:
    return _find(crd, type_).get("reason", "")


def _find(crd: CRD, type_: str) -> dict[str, str]:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == type_), {})

"""The namespace controller: a Terminating namespace loses its content, then itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode, stored_form, with_revision
from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.kinds import NAMESPACE, Object
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, Retry
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.embedded.strategies.cluster.namespaces import FINALIZER
from kapsa.devcluster.embedded.verbs.client import Verbs
from kapsa.devcluster.embedded.verbs.deletion import remove
from kapsa.devcluster.wire.status_errors import StatusError

_FINE: tuple[tuple[str, str, str], ...] = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


class Remains(msgspec.Struct, frozen=True):
    """What a namespace still holds."""

    resources: dict[str, int]
    """Instances by `resource.group` (with the dot even for the core group)."""
    finalizers: dict[str, int]
    failures: list[str]


def conditions(before: list[dict[str, Any]], remains: Remains, now: datetime) -> list[dict[str, Any]]:
    """The conditions of a Terminating namespace; what is as it was keeps its time."""
    troubles: dict[str, tuple[str, str]] = {}
    if remains.failures:
        texts = ", ".join(sorted(remains.failures))
        message = f"Failed to delete all resource types, {len(remains.failures)} remaining: {texts}"
        troubles["NamespaceDeletionContentFailure"] = "ContentDeletionFailed", message
    if remains.resources:
        texts = ", ".join(
            sorted(f"{what} has {n} resource instances" for what, n in remains.resources.items())
        )
        troubles["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {texts}",
        )
    if remains.finalizers:
        texts = ", ".join(
            sorted(f"{what} in {n} resource instances" for what, n in remains.finalizers.items())
        )
        message = f"Some content in the namespace has finalizers remaining: {texts}"
        troubles["NamespaceFinalizersRemaining"] = "SomeFinalizersRemain", message
    wanted = []
    for type_, reason, message in _FINE:
        status = "False"
        if type_ in troubles:
            status, (reason, message) = "True", troubles[type_]
        current = find(before, type_)
        since = current["lastTransitionTime"] if current and current["status"] == status else render(now)
        wanted.append(
            {
                "type": type_,
                "status": status,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    known = {type_ for type_, _, _ in _FINE}
    return [c for c in before if c["type"] not in known] + wanted


class NamespaceController:
    """Empties namespaces that are being deleted."""

    name = "namespace-controller"

    def __init__(self, backend: Backend, verbs: Verbs) -> None:
        self._backend = backend
        self._verbs = verbs
        self._ending: set[str] = set()
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        for stored in self._backend.store.collection("", "namespaces").current():
            self._look(stored.name, stored.body)

    def follow(self, collection: Collection, change: StoreChange) -> None:
        if collection.key == ("", "namespaces"):
            if change.type == "DELETED":
                self._ending.discard(change.object.name)
            else:
                self._look(change.object.name, change.object.body)
        elif self._ending and change.object.namespace in self._ending:
            self.queue.add(("", change.object.namespace))

    def _look(self, name: str, body: bytes) -> None:
        if b'"deletionTimestamp":"' in body:
            self._ending.add(name)
            self.queue.add(("", name))

    async def _process(self, key: Key) -> None:
        name = key[1]
        namespace = self._find(name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        failures = await self._empty(name)
        namespace = self._find(name)
        if namespace is None:
            return
        remains = self._remains(name, failures)
        if remains.resources or remains.failures:
            await self._report(namespace, remains)
            return
        self._finalize(namespace)

    def _find(self, name: str) -> Object | None:
        stored = self._backend.store.collection("", "namespaces").get(name)
        return None if stored is None else decode(stored)

    def _collections(self) -> list[tuple[ResourceInfo, Collection]]:
        found: dict[tuple[str, str], tuple[ResourceInfo, Collection]] = {}
        for info in self._backend.registry:
            if info.namespaced and "delete" in info.verbs:
                collection = self._backend.collection(info)
                if len(collection) and info.version == (info.storage_version or info.version):
                    found.setdefault(collection.key, (info, collection))
        return list(found.values())

    async def _empty(self, name: str) -> list[str]:
        failures = []
        for info, collection in self._collections():
            for stored in collection.current(f"{name}/"):
                if b'"deletionTimestamp":"' in stored.body:
                    continue
                try:
                    await self._verbs.delete(
                        info, stored.namespace, stored.name, uid=stored.uid, propagation="Background"
                    )
                except StatusError as error:
                    if error.reason not in ("NotFound", "Conflict"):
                        failures.append(error.message)
        return failures

    def _remains(self, name: str, failures: list[str]) -> Remains:
        resources: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for info, collection in self._collections():
            left = collection.current(f"{name}/")
            if left:
                resources[f"{info.resource}.{info.group}"] = len(left)
            for stored in left:
                for finalizer in decode(stored)["metadata"].get("finalizers") or ():
                    finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        return Remains(resources, finalizers, failures)

    async def _report(self, namespace: Object, remains: Remains) -> None:
        status = dict(namespace.get("status") or {})
        before = status.get("conditions") or []
        after = conditions(before, remains, self._backend.clock.now())
        if after == before:
            return
        status["conditions"] = after
        info = self._verbs.resource(NAMESPACE.group, NAMESPACE.version, NAMESPACE.resource)
        try:
            await self._verbs.update_status(info, {**namespace, "status": status})
        except StatusError as error:
            if error.reason == "Conflict":
                raise Retry from None
            if error.reason != "NotFound":
                raise

    def _finalize(self, namespace: Object) -> None:
        """Take the `kubernetes` finalizer away, as the finalize subresource would; the last one to go removes it."""
        info = self._verbs.resource(NAMESPACE.group, NAMESPACE.version, NAMESPACE.resource)
        collection = self._backend.collection(info)
        live = collection.get(namespace["metadata"]["name"])
        if live is None:
            return
        left = [f for f in (namespace.get("spec") or {}).get("finalizers") or () if f != FINALIZER]
        namespace = {**namespace, "spec": {"finalizers": left} if left else {}}
        if not left and not namespace["metadata"].get("finalizers"):
            remove(self._backend, info, live)
            return
        unchanged = stored_form(info, namespace, live.revision)
        if unchanged.body != live.body:
            collection.put(with_revision(unchanged, self._backend.store.next_revision))

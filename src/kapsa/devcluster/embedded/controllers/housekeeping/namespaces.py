"""The namespace controller: deletes the content of Terminating namespaces, then the namespaces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode, stored_form
from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.kinds import NAMESPACE, Object
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, Retry
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.embedded.strategies.cluster.namespaces import FINALIZER
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.commit import commit_stored, remove
from kapsa.devcluster.wire.status_errors import StatusError

_NO_PROBLEM: tuple[tuple[str, str, str], ...] = (
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


class RemainingContent(msgspec.Struct, frozen=True):
    """The remaining content of a namespace."""

    resources: dict[str, int]
    """Instances by `resource.group` (with the dot even for the core group)."""
    finalizers: dict[str, int]
    """Instances by finalizer."""
    failures: list[str]


def conditions(
    before: list[dict[str, Any]], remaining: RemainingContent, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions of a Terminating namespace. Unchanged ones keep their transition time."""
    problems: dict[str, tuple[str, str]] = {}
    if remaining.failures:
        texts = ", ".join(sorted(remaining.failures))
        message = f"Failed to delete all resource types, {len(remaining.failures)} remaining: {texts}"
        problems["NamespaceDeletionContentFailure"] = "ContentDeletionFailed", message
    if remaining.resources:
        texts = ", ".join(
            sorted(f"{what} has {n} resource instances" for what, n in remaining.resources.items())
        )
        problems["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {texts}",
        )
    if remaining.finalizers:
        texts = ", ".join(
            sorted(f"{what} in {n} resource instances" for what, n in remaining.finalizers.items())
        )
        message = f"Some content in the namespace has finalizers remaining: {texts}"
        problems["NamespaceFinalizersRemaining"] = "SomeFinalizersRemain", message
    own = []
    for type_, reason, message in _NO_PROBLEM:
        status = "False"
        if type_ in problems:
            status, (reason, message) = "True", problems[type_]
        current = find(before, type_)
        since = current["lastTransitionTime"] if current and current["status"] == status else render(now)
        own.append(
            {
                "type": type_,
                "status": status,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    own_types = {type_ for type_, _, _ in _NO_PROBLEM}
    return [c for c in before if c["type"] not in own_types] + own


class NamespaceController:
    """Controller that empties namespaces that are being deleted."""

    name = "namespace-controller"

    def __init__(self, backend: Backend, client: InProcessClient) -> None:
        self._backend = backend
        self._client = client
        self._terminating: set[str] = set()
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue the namespaces that are terminating."""
        for stored in self._backend.store.collection("", "namespaces").current():
            self._enqueue_if_terminating(stored.name, stored.body)

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Enqueue a terminating namespace when it or its content changes."""
        if collection.key == ("", "namespaces"):
            if change.type == "DELETED":
                self._terminating.discard(change.object.name)
            else:
                self._enqueue_if_terminating(change.object.name, change.object.body)
        elif self._terminating and change.object.namespace in self._terminating:
            self.queue.add(("", change.object.namespace))

    def _enqueue_if_terminating(self, name: str, body: bytes) -> None:
        if b'"deletionTimestamp":"' in body:
            self._terminating.add(name)
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
        remaining = self._remaining(name, failures)
        if remaining.resources or remaining.failures:
            await self._report(namespace, remaining)
            return
        self._finalize(namespace)

    def _find(self, name: str) -> Object | None:
        stored = self._backend.store.collection("", "namespaces").get(name)
        return None if stored is None else decode(stored)

    def _collections(self) -> list[tuple[ResourceInfo, Collection]]:
        collections: dict[tuple[str, str], tuple[ResourceInfo, Collection]] = {}
        for info in self._backend.registry:
            if info.namespaced and "delete" in info.verbs:
                collection = self._backend.collection(info)
                if len(collection) and info.version == (info.storage_version or info.version):
                    collections.setdefault(collection.key, (info, collection))
        return list(collections.values())

    async def _empty(self, name: str) -> list[str]:
        failures = []
        for info, collection in self._collections():
            for stored in collection.current(f"{name}/"):
                if b'"deletionTimestamp":"' in stored.body:
                    continue
                try:
                    await self._client.delete(
                        info, stored.namespace, stored.name, uid=stored.uid, propagation="Background"
                    )
                except StatusError as error:
                    if error.reason not in ("NotFound", "Conflict"):
                        failures.append(error.message)
        return failures

    def _remaining(self, name: str, failures: list[str]) -> RemainingContent:
        resources: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for info, collection in self._collections():
            left = collection.current(f"{name}/")
            if left:
                resources[f"{info.resource}.{info.group}"] = len(left)
            for stored in left:
                for finalizer in decode(stored)["metadata"].get("finalizers") or ():
                    finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        return RemainingContent(resources, finalizers, failures)

    async def _report(self, namespace: Object, remaining: RemainingContent) -> None:
        status = dict(namespace.get("status") or {})
        before = status.get("conditions") or []
        after = conditions(before, remaining, self._backend.clock.now())
        if after == before:
            return
        status["conditions"] = after
        info = self._client.resource(NAMESPACE.group, NAMESPACE.version, NAMESPACE.resource)
        try:
            await self._client.update_status(info, {**namespace, "status": status})
        except StatusError as error:
            if error.reason == "Conflict":
                raise Retry from None
            if error.reason != "NotFound":
                raise

    def _finalize(self, namespace: Object) -> None:
        """Remove the `kubernetes` finalizer, and the namespace if no other finalizer is left."""
        info = self._client.resource(NAMESPACE.group, NAMESPACE.version, NAMESPACE.resource)
        live = self._backend.collection(info).get(namespace["metadata"]["name"])
        if live is None:
            return
        left = [f for f in (namespace.get("spec") or {}).get("finalizers") or () if f != FINALIZER]
        namespace = {**namespace, "spec": {"finalizers": left} if left else {}}
        if not left and not namespace["metadata"].get("finalizers"):
            remove(self._backend, info, live)
            return
        unchanged = stored_form(info, namespace, live.revision)
        if unchanged.body != live.body:
            commit_stored(self._backend, info, unchanged)

"""The Event recorder: writes Events about objects and counts repeats instead of storing them again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.kinds import EVENT, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import Note
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.commit import commit
from kapsa.devcluster.wire.status_errors import StatusError

_REMEMBERED = 4096
_MESSAGE_LIMIT = 1024


class Recorder:
    """A recorder that writes Events the way client-go's does."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._names: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._sequence = 0

    async def record(self, note: Note, message: str, component: str, manager: str) -> None:
        """Record a note. An Event that cannot be written is lost, as with any recorder."""
        message = message[:_MESSAGE_LIMIT]
        metadata = note.about["metadata"]
        key = (component, note.type, note.reason, message, metadata["uid"])
        client = InProcessClient(self._backend, manager=manager)
        try:
            if not await self._count(client, key):
                self._create(note, message, component, manager, key)
        except StatusError:
            self._names.pop(key, None)

    async def _count(self, client: InProcessClient, key: tuple[str, ...]) -> bool:
        name = self._names.get(key)
        if name is None:
            return False
        info = client.resource(EVENT.group, EVENT.version, EVENT.resource)
        event = client.find(info, *name)
        if event is None:
            return False
        event["count"] = event.get("count", 1) + 1
        event["lastTimestamp"] = self._backend.now()
        await client.update(info, event)
        return True

    def _create(self, note: Note, message: str, component: str, manager: str, key: tuple[str, ...]) -> None:
        """Commit a new Event without admission and validation.

        Half of a busy cluster's writes are Events, and these are well formed: they need no validation.
        """
        metadata = note.about["metadata"]
        namespace = metadata.get("namespace") or "default"
        if not self._is_open(namespace):
            return
        now = self._backend.clock.now()
        self._sequence += 1
        name = f"{metadata['name']}.{int(now.timestamp()) * 10**9 + self._sequence:x}"
        stamp = render(now)
        info = self._backend.registry.get(EVENT.group, EVENT.version, EVENT.resource)
        event: Object = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": self._backend.new_uid(),
                "creationTimestamp": stamp,
                "managedFields": [_managed(manager, stamp)],
            },
            "involvedObject": _reference(note.about),
            "reason": note.reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "type": note.type,
            "eventTime": None,
            "reportingComponent": component,
            "reportingInstance": "",
        }
        commit(self._backend, info, event)
        self._names[key] = namespace, name
        if len(self._names) > _REMEMBERED:
            self._names.popitem(last=False)

    def _is_open(self, namespace: str) -> bool:
        """Return whether the namespace accepts new objects. An Event must not delay its termination."""
        stored = self._backend.store.collection("", "namespaces").get(namespace)
        return stored is not None and b'"deletionTimestamp":"' not in stored.body


def _reference(obj: Object) -> dict[str, Any]:
    metadata = obj["metadata"]
    reference = {"kind": obj["kind"]}
    if metadata.get("namespace"):
        reference["namespace"] = metadata["namespace"]
    reference.update(
        name=metadata["name"],
        uid=metadata["uid"],
        apiVersion=obj["apiVersion"],
        resourceVersion=metadata.get("resourceVersion", ""),
    )
    return reference


_FIELDS = ("count", "firstTimestamp", "involvedObject", "lastTimestamp", "message", "reason")
_FIELDS_V1: dict[str, Any] = {f"f:{field}": {} for field in (*_FIELDS, "reportingComponent", "type")}
_FIELDS_V1["f:source"] = {"f:component": {}}


def _managed(manager: str, stamp: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": stamp,
        "fieldsType": "FieldsV1",
        "fieldsV1": _FIELDS_V1,
    }

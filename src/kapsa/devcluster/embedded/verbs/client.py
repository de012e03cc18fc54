"""The server's verbs for code in its own process: controllers, with Python objects instead of bytes.

Writes go the same way as a client's: admission, validation, strategies and revisions included. An error is an
:class:`~kapsa.devcluster.wire.status_errors.ApiError` with the code and reason a client would get.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.options import ListParameters, WriteParameters
from kapsa.devcluster.embedded.storage.store import CompactedError
from kapsa.devcluster.embedded.verbs import deletion, writes
from kapsa.devcluster.embedded.verbs.deletion import DeleteParameters, DeleteRequest, Preconditions
from kapsa.devcluster.embedded.verbs.selection import Selection, selection
from kapsa.devcluster.embedded.verbs.writes import WriteRequest
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.devcluster.wire.status_errors import expired, not_found

__all__ = ["Event", "Verbs"]

Object = dict[str, Any]


class Event(msgspec.Struct, frozen=True):
    """One change as a controller sees it."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    object: Object
    revision: int


class Verbs:
    """Reads and writes by resource."""

    def __init__(
        self, backend: Backend, user: RequestUser | None = None, manager: str = "kube-controller-manager"
    ) -> None:
        self._backend = backend
        self._manager = manager
        self._user = user or RequestUser(
            username=f"system:{manager}", groups=("system:authenticated", "system:masters")
        )

    def as_manager(self, manager: str) -> Verbs:
        """The same verbs in another component's name."""
        return Verbs(self._backend, manager=manager)

    @property
    def revision(self) -> int:
        """The newest revision."""
        return self._backend.store.revision

    def resource(self, group: str, version: str, resource: str) -> ResourceInfo:
        """The resource of that name; LookupError when it is not served."""
        return self._backend.registry.get(group, version, resource)

    # Reading

    def find(self, info: ResourceInfo, namespace: str, name: str) -> Object | None:
        """An object, or None. What comes back is a copy that the caller may change."""
        stored = self._backend.collection(info).get(info.object_key(namespace, name))
        return None if stored is None else decode(stored)

    def get(self, info: ResourceInfo, namespace: str, name: str) -> Object:
        """An object; ApiError 404 when it does not exist."""
        found = self.find(info, namespace, name)
        if found is None:
            raise not_found(info, name)
        return found

    def list(
        self, info: ResourceInfo, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """The objects that match, in key order."""
        chosen = self._selection(info, namespace, labels, fields)
        return [
            decode(stored) for stored in chosen.filter(self._backend.collection(info).current(chosen.prefix))
        ]

    async def watch(
        self,
        info: ResourceInfo,
        namespace: str = "",
        *,
        since: int | None = None,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[Event]:
        """Changes after a revision (by default: all existing objects first, as ADDED), for ever.

        :raises ApiError: 410 when the watcher has fallen out of the window.
        """
        chosen = self._selection(info, namespace, labels, fields)
        collection = self._backend.collection(info)
        if since is None:
            position = collection.end
            for stored in chosen.filter(collection.current(chosen.prefix)):
                yield Event("ADDED", decode(stored), stored.revision)
        else:
            position = collection.position_after(since)
        waiter = None
        try:
            while True:
                try:
                    changes = collection.read(position)
                except CompactedError as error:
                    raise expired(f"too old resource version: {error.requested} ({error.oldest})") from None
                position += len(changes)
                for change in changes:
                    before = change.previous is not None and chosen.matches(change.previous)
                    after = change.type != "DELETED" and chosen.matches(change.object)
                    if after:
                        yield Event("MODIFIED" if before else "ADDED", decode(change.object), change.revision)
                    elif before:
                        yield Event("DELETED", decode(change.object), change.revision)
                if not changes:
                    waiter = collection.changed()
                    await waiter
        finally:
            if waiter is not None:
                collection.forget(waiter)

    def _selection(self, info: ResourceInfo, namespace: str, labels: str, fields: str) -> Selection:
        return selection(info, namespace, ListParameters(label_selector=labels, field_selector=fields))

    # Writing

    async def create(self, info: ResourceInfo, obj: Object, *, namespace: str = "") -> Object:
        """Create an object; its namespace is the object's own unless one is given."""
        write = self._write(info, namespace or obj["metadata"].get("namespace", ""))
        return decode(await writes.create(self._backend, write, _copy(obj)))

    async def update(self, info: ResourceInfo, obj: Object) -> Object:
        """Replace an object; its resourceVersion, when set, must be the live one."""
        return await self._replace(info, obj, "")

    async def update_status(self, info: ResourceInfo, obj: Object) -> Object:
        """Replace an object's status."""
        return await self._replace(info, obj, "status")

    async def _replace(self, info: ResourceInfo, obj: Object, subresource: str) -> Object:
        meta = obj["metadata"]
        write = self._write(info, meta.get("namespace", ""), meta["name"], subresource)
        return decode(await writes.update(self._backend, write, lambda _: _copy(obj)))

    async def delete(
        self,
        info: ResourceInfo,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete an object; ApiError 404 when it is gone, 409 when another uid has its name."""
        options = DeleteParameters(
            grace_period_seconds=grace_seconds,
            preconditions=Preconditions(uid=uid) if uid else None,
            propagation_policy=propagation,
        )
        options.validate()
        await deletion.delete(
            self._backend,
            DeleteRequest(info=info, namespace=namespace, name=name, options=options, user=self._user),
        )

    def _write(
        self, info: ResourceInfo, namespace: str, name: str = "", subresource: str = ""
    ) -> WriteRequest:
        return WriteRequest(
            info=info,
            namespace=namespace if info.namespaced else "",
            name=name,
            subresource=subresource,
            options=WriteParameters(manager=self._manager, field_validation="Ignore"),
            user=self._user,
        )


def _copy(obj: Mapping[str, Any]) -> Object:
    # Through JSON and back: a caller's object stays its own, and what is stored is plain data.
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied

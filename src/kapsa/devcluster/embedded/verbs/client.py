"""A client for code in the server's own process, such as controllers: Python objects instead of bytes.

Writes take the path of every write: admission, validation, strategies and revisions included. An error is the
`StatusError` with the code and reason that a remote client would get.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import (
    DeleteParameters,
    ListParameters,
    Preconditions,
    WriteMethod,
    WriteParameters,
)
from kapsa.devcluster.embedded.verbs import bindings, deletion, writes
from kapsa.devcluster.embedded.verbs.selection import Selection, selection
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.devcluster.wire.status_errors import not_found

__all__ = ["InProcessClient"]

Object = dict[str, Any]


class InProcessClient:
    """The reads and writes of one component, by resource."""

    def __init__(
        self, backend: Backend, user: RequestUser | None = None, manager: str = "kube-controller-manager"
    ) -> None:
        self._backend = backend
        self._manager = manager
        self._user = user or RequestUser(
            username=f"system:{manager}", groups=("system:authenticated", "system:masters")
        )

    def as_manager(self, manager: str) -> InProcessClient:
        """Return a client with the identity of another component."""
        return InProcessClient(self._backend, manager=manager)

    def resource(self, group: str, version: str, resource: str) -> ResourceInfo:
        """Return a served resource. Raises LookupError for any other."""
        return self._backend.registry.get(group, version, resource)

    # Reading

    def find(self, info: ResourceInfo, namespace: str, name: str) -> Object | None:
        """Return a copy of an object, or None."""
        stored = self._backend.collection(info).get(info.object_key(namespace, name))
        return None if stored is None else decode(stored)

    def get(self, info: ResourceInfo, namespace: str, name: str) -> Object:
        """Return a copy of an object. Raises StatusError 404 when it does not exist."""
        obj = self.find(info, namespace, name)
        if obj is None:
            raise not_found(info, name)
        return obj

    def list(
        self, info: ResourceInfo, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Return copies of the matching objects, in key order."""
        chosen = self._selection(info, namespace, labels, fields)
        return [
            decode(stored) for stored in chosen.filter(self._backend.collection(info).current(chosen.prefix))
        ]

    def _selection(self, info: ResourceInfo, namespace: str, labels: str, fields: str) -> Selection:
        return selection(info, namespace, ListParameters(label_selector=labels, field_selector=fields))

    # Writing

    async def create(self, info: ResourceInfo, obj: Object, *, namespace: str = "") -> Object:
        """Create an object in the given namespace, by default in the one it names."""
        write = self._write(WriteMethod.CREATE, info, namespace or obj["metadata"].get("namespace", ""))
        return decode(await writes.create(self._backend, write, _copy(obj)))

    async def update(self, info: ResourceInfo, obj: Object) -> Object:
        """Replace an object. A resourceVersion, if set, must be the live one."""
        return await self._replace(info, obj, "")

    async def update_status(self, info: ResourceInfo, obj: Object) -> Object:
        """Replace an object's status."""
        return await self._replace(info, obj, "status")

    async def _replace(self, info: ResourceInfo, obj: Object, subresource: str) -> Object:
        meta = obj["metadata"]
        write = self._write(WriteMethod.UPDATE, info, meta.get("namespace", ""), meta["name"], subresource)
        return decode((await writes.update(self._backend, write, lambda _: _copy(obj))).stored)

    async def bind(self, info: ResourceInfo, namespace: str, name: str, node: str) -> None:
        """Assign a pod to a node. Raises StatusError 404 when it does not exist, 409 when it has a node."""
        write = self._write(WriteMethod.UPDATE, info, namespace, name, "binding")
        await bindings.bind(self._backend, write, node)

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
        """Delete an object. Raises StatusError 404 when it does not exist, 409 when its uid is another."""
        parameters = DeleteParameters(
            grace_period_seconds=grace_seconds,
            preconditions=Preconditions(uid=uid) if uid else None,
            propagation_policy=propagation,
        )
        parameters.validate()
        await deletion.delete(
            self._backend,
            DeleteRequest(info=info, namespace=namespace, name=name, parameters=parameters, user=self._user),
        )

    def _write(
        self, method: WriteMethod, info: ResourceInfo, namespace: str, name: str = "", subresource: str = ""
    ) -> WriteRequest:
        return WriteRequest(
            info=info,
            method=method,
            namespace=namespace if info.namespaced else "",
            name=name,
            subresource=subresource,
            parameters=WriteParameters(manager=self._manager, field_validation="Ignore"),
            user=self._user,
        )


def _copy(obj: Mapping[str, Any]) -> Object:
    # Through JSON: the caller's object is not changed, and the stored one is plain data.
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied

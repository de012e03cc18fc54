"""A server without controllers: it stores the objects as the strategies leave them."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.wire.status_errors import StatusError

Object = dict[str, Any]

_GROUPS = {
    "deployments": "apps",
    "replicasets": "apps",
    "statefulsets": "apps",
    "daemonsets": "apps",
    "jobs": "batch",
    "cronjobs": "batch",
    "ingresses": "networking.k8s.io",
    "networkpolicies": "networking.k8s.io",
    "poddisruptionbudgets": "policy",
    "storageclasses": "storage.k8s.io",
    "leases": "coordination.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
}


class ApiServer:
    """An API server that is called in process."""

    def __init__(self) -> None:
        self.server = Server()

    async def create(self, resource: str, name: str, **content: Any) -> Object:
        if resource == "pods":
            # Without controllers nobody creates the account that admission requires of a pod.
            await self.create("serviceaccounts", "default")
        info = self.server.client.resource(_GROUPS.get(resource, ""), "v1", resource)
        metadata = {"name": name, **content.pop("metadata", {})}
        if info.namespaced:
            metadata["namespace"] = "default"
        return await self.server.client.create(info, {"metadata": metadata, **content})

    async def update(self, resource: str, obj: Object) -> Object:
        info = self.server.client.resource(_GROUPS.get(resource, ""), "v1", resource)
        return await self.server.client.update(info, obj)

    async def update_status(self, resource: str, obj: Object) -> Object:
        info = self.server.client.resource(_GROUPS.get(resource, ""), "v1", resource)
        return await self.server.client.update_status(info, obj)

    async def delete(self, resource: str, name: str) -> None:
        info = self.server.client.resource(_GROUPS.get(resource, ""), "v1", resource)
        await self.server.client.delete(info, "default" if info.namespaced else "", name)

    async def rejection(self, resource: str, name: str, **content: Any) -> str:
        """Return the message with which the server rejects an object."""
        with pytest.raises(StatusError) as rejected:
            await self.create(resource, name, **content)
        return rejected.value.message


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()

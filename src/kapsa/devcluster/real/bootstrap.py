"""What turns a bare control plane into a cluster: nodes and a storage class, made through its own API."""

import ssl
from types import TracebackType
from typing import Any

import aiohttp

from kapsa.devcluster.errors import DevClusterError
from kapsa.devcluster.real.kwok_stages import STORAGE_PROVISIONER

NODE_RESOURCES = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "1000"}

STORAGE_CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": STORAGE_PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}

NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
"""Who stands in for the kubelet of which node, and until when."""

_AUTHORITIES = "/api/v1/configmaps?fieldSelector=metadata.name=kube-root-ca.crt"
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=5)


def node(number: int, *, version: str) -> dict[str, Any]:
    """The nth node, counted from 1, with a kubelet of this version. kwok keeps it alive from here on."""
    name = f"node-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/worker": "",
            },
        },
        "status": {
            "capacity": NODE_RESOURCES,
            "allocatable": NODE_RESOURCES,
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250 + 1}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "",
                "containerRuntimeVersion": "",
                "kubeletVersion": version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


class Administrator:
    """The few API calls a new cluster needs before it has any other client."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._session = aiohttp.ClientSession(
            url, connector=aiohttp.TCPConnector(ssl=context), timeout=_REQUEST_TIMEOUT
        )

    async def __aenter__(self) -> "Administrator":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def is_ready(self) -> bool:
        return await self.exists("/readyz")

    async def exists(self, path: str) -> bool:
        return await self._get(path) is not None

    async def version(self) -> str:
        """The version of the API server."""
        found = await self._get("/version")
        return str(found["gitVersion"]) if found else ""

    async def is_schedulable(self, node_name: str) -> bool:
        """Whether a node is Ready, its start-up taint is gone, and someone plays its kubelet."""
        found = await self._get(f"/api/v1/nodes/{node_name}")
        if found is None or not await self.exists(f"{NODE_LEASES}/{node_name}"):
            return False
        ready = {
            condition["type"]: condition["status"] for condition in found["status"].get("conditions", ())
        }
        return ready.get("Ready") == "True" and not found["spec"].get("taints")

    async def has_published(self, authority: str) -> bool:
        """Whether the copies of the cluster's authority in the namespaces, also in `default`, are this one."""
        found = await self._get(_AUTHORITIES) or {"items": ()}
        copies = {item["metadata"]["namespace"]: item.get("data") for item in found["items"]}
        return "default" in copies and all(copy == {"ca.crt": authority} for copy in copies.values())

    async def create(self, path: str, body: dict[str, Any]) -> None:
        """Create it, unless the data that the cluster began with has it."""
        async with self._session.post(path, json=body) as response:
            if response.status not in (201, 409):
                reason = (await response.text())[:400]
                raise DevClusterError(
                    f"the new cluster refused its {body['kind']} {body['metadata']['name']}: {reason}"
                )

    async def delete_all(self, path: str) -> None:
        async with self._session.delete(path) as response:
            if response.status != 200:
                reason = (await response.text())[:400]
                raise DevClusterError(f"the new cluster refused to delete {path}: {reason}")

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            async with self._session.get(path) as response:
                if response.status != 200:
                    return None
                if response.content_type != "application/json":
                    return {}
                found: dict[str, Any] = await response.json()
                return found
        except (aiohttp.ClientError, TimeoutError):
            # Not listening yet, or still busy with its own start.
            return None

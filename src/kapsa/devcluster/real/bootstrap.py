"""The first objects of a new cluster, nodes and a storage class, created through its own API."""

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
    "allowVolumeExpansion": True,
    "volumeBindingMode": "Immediate",
}

NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
"""The Leases that kwok holds for the nodes whose kubelet it simulates."""

_AUTHORITIES = "/api/v1/configmaps?fieldSelector=metadata.name=kube-root-ca.crt"
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=5)


def node(number: int, *, version: str) -> dict[str, Any]:
    """Return the nth node, counted from 1, with a kubelet of this version. kwok keeps it Ready."""
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
    """A client for the few API calls that a new cluster needs."""

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
        """Return the version of the API server, "" if it does not respond."""
        version = await self._get("/version")
        return str(version["gitVersion"]) if version else ""

    async def is_schedulable(self, node_name: str) -> bool:
        """Return whether a node is Ready, has lost its start-up taint, and has a simulated kubelet."""
        current = await self._get(f"/api/v1/nodes/{node_name}")
        if current is None or not await self.exists(f"{NODE_LEASES}/{node_name}"):
            return False
        conditions = {
            condition["type"]: condition["status"] for condition in current["status"].get("conditions", ())
        }
        return conditions.get("Ready") == "True" and not current["spec"].get("taints")

    async def has_published(self, authority: str) -> bool:
        """Return whether all namespaces, `default` among them, have this authority in their ConfigMap."""
        config_maps = await self._get(_AUTHORITIES) or {"items": ()}
        copies = {item["metadata"]["namespace"]: item.get("data") for item in config_maps["items"]}
        return "default" in copies and all(copy == {"ca.crt": authority} for copy in copies.values())

    async def create(self, path: str, body: dict[str, Any]) -> None:
        """Create an object, unless the data that the cluster started with has it."""
        async with self._session.post(path, json=body) as response:
            if response.status not in (201, 409):
                reason = (await response.text())[:400]
                raise DevClusterError(
                    f"cannot create {body['kind']} {body['metadata']['name']} in the new cluster: {reason}"
                )

    async def delete_all(self, path: str) -> None:
        async with self._session.delete(path) as response:
            if response.status != 200:
                reason = (await response.text())[:400]
                raise DevClusterError(f"cannot delete {path} in the new cluster: {reason}")

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            async with self._session.get(path) as response:
                if response.status != 200:
                    return None
                if response.content_type != "application/json":
                    return {}
                document: dict[str, Any] = await response.json()
                return document
        except (aiohttp.ClientError, TimeoutError):
            # The API server does not listen yet, or is still starting.
            return None

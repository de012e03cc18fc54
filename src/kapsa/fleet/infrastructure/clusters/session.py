"""A session with one cluster: each request is bounded, and each failure has a reason for people."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.adapters.redaction import printable
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.infrastructure.clusters.answers import answering
from kapsa.fleet.infrastructure.clusters.api_versions import read_api_versions
from kapsa.fleet.infrastructure.clusters.inventory import read_inventory, read_release_content
from kapsa.fleet.infrastructure.clusters.kubeconfig_credential import valid_until
from kapsa.fleet.infrastructure.clusters.service_account import (
    bootstrap_account,
    request_token,
    withdraw_account,
)
from kapsa.fleet.orchestrator.ports.clusters import (
    ClusterIdentity,
    ClusterReading,
    ClusterUnreachable,
    IssuedAccess,
    ReleaseContent,
    ServiceAccountRef,
)
from kapsa.runtime import ApiError, Client, Forbidden, NotFound, Unauthorized

__all__ = ["KubernetesSession"]

_SHORT, _LONG = 10.0, 120.0
"""Seconds for a look at a cluster, and for its inventory."""
_READY_LIMIT = 500


class _VersionInfo(msgspec.Struct, rename="camel"):
    git_version: str


class KubernetesSession:
    """A session over a client, which the gateway opens and closes."""

    def __init__(self, client: Client, server: str, kubeconfig: bytes, token_lifetime: timedelta) -> None:
        self._client = client
        self._server = server
        self._kubeconfig = kubeconfig
        self._token_lifetime = token_lifetime

    async def identify(self) -> ClusterIdentity:
        """Return the cluster that this is."""
        async with answering(self._server, _SHORT):
            version, uid = await self._version(), await self._uid()
            return ClusterIdentity(self._server, version, uid, valid_until(self._kubeconfig))

    async def bootstrap(self, account: ServiceAccountRef) -> IssuedAccess:
        """Create the account of this manager, or repair it, and return a token for it."""
        async with answering(self._server, _SHORT):
            await bootstrap_account(self._client, account)
            return await request_token(self._client, account, self._kubeconfig, self._token_lifetime)

    async def issue(self, account: ServiceAccountRef) -> IssuedAccess:
        """Return a new token for the account of this manager."""
        async with answering(self._server, _SHORT):
            return await request_token(self._client, account, self._kubeconfig, self._token_lifetime)

    async def withdraw(self, account: ServiceAccountRef) -> None:
        """Delete the account of this manager, and with it every token."""
        async with answering(self._server, _SHORT):
            await withdraw_account(self._client, account)

    async def read_health(self) -> ClusterReading:
        """Return version, readiness, nodes and latency."""
        async with answering(self._server, _SHORT):
            started = time.perf_counter()
            version = await self._version()
            latency = (time.perf_counter() - started) * 1000
            ready, message = await self._ready()
            nodes = nodes_ready = 0
            async for page in self._client.pages("v1/Node", limit=200):
                nodes += len(page.items)
                nodes_ready += sum(map(_is_ready, page.items))
            return ClusterReading(version, ready, message, nodes, nodes_ready, round(latency, 1))

    async def take_inventory(self, now: datetime) -> ClusterInventory:
        """Return the Helm releases and CRDs."""
        async with answering(self._server, _LONG):
            return await read_inventory(self._client, now)

    async def api_versions(self) -> tuple[str, ...]:
        """Return the API versions and kinds that the cluster serves."""
        async with answering(self._server, _SHORT):
            return await read_api_versions(self._client)

    async def release(self, namespace: str, name: str) -> ReleaseContent | None:
        """Return a Helm release, or None if there is none."""
        async with answering(self._server, _LONG):
            return await read_release_content(self._client, namespace, name)

    async def _version(self) -> str:
        content = await self._client.read("/version")
        try:
            return msgspec.json.decode(content, type=_VersionInfo).git_version[:64]
        except msgspec.DecodeError:
            raise ClusterUnreachable(
                f"{self._server} is not the API server of a cluster: /version is not JSON"
            ) from None

    async def _uid(self) -> str:
        try:
            namespace = await self._client.get("v1/Namespace", "kube-system", metadata_only=True)
        except (Forbidden, NotFound):
            return ""
        return str(namespace["metadata"].get("uid", ""))

    async def _ready(self) -> tuple[bool, str]:
        try:
            content = await self._client.read("/readyz")
        except (Unauthorized, Forbidden):
            raise
        except ApiError as error:
            return False, printable(str(error))[:_READY_LIMIT]
        return content.strip() == b"ok", printable(content[:_READY_LIMIT].decode("utf-8", "replace"))


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)

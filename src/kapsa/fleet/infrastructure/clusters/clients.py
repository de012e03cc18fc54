"""Long-lived clients of registered clusters, one for each credential, with connections only while they are used.

A replica has fewer than a hundred connections to clusters. What makes a client expensive is not the connection but
the rest: its TLS context, and the kinds that it has discovered. These stay for more clusters than a manager has.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.infrastructure.clusters.answers import reason_of
from kapsa.fleet.infrastructure.clusters.gateway import ClusterClient, untrusted_client
from kapsa.fleet.orchestrator.ports.clusters import ClusterRepository, CredentialRejected
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials
from kapsa.runtime import CredentialError, Unauthorized

__all__ = ["ClusterClients"]


class _Cached:
    def __init__(self, kubeconfig: bytes, client: ClusterClient) -> None:
        self.kubeconfig = kubeconfig
        self.client = client
        self.users = 0
        self.retired = False


class ClusterClients:
    """Clients by cluster. A new token makes a new client; the old one closes when its last user is done."""

    def __init__(
        self,
        transactions: Transactions,
        repository: ClusterRepository,
        credentials: ClusterCredentials,
        *,
        allow_loopback: bool = False,
        most: int = 128,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._credentials = credentials
        self._allow_loopback = allow_loopback
        self._most = most
        self._cached: OrderedDict[uuid.UUID, _Cached] = OrderedDict()
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def client(self, cluster_id: uuid.UUID) -> AsyncIterator[ClusterClient]:
        """Return the client of a cluster, with a token that is valid now.

        Raises UnknownObject if the cluster is not registered, and ClusterUnreachable, with the remedy, if there is no
        credential or the cluster does not accept it.
        """
        async with self._transactions.transaction() as connection:
            cluster = await self._repository.by_id(connection, cluster_id)
        if cluster is None:
            raise UnknownObject(f"there is no cluster {cluster_id}")
        cached = await self._take(cluster_id, await self._credentials.access(cluster))
        try:
            yield cached.client
        except (Unauthorized, CredentialError) as error:
            raise CredentialRejected(_remedy(cluster, error)) from None
        finally:
            cached.users -= 1
            if not cached.users:
                await _rest(cached)

    async def close(self) -> None:
        """Close all clients that nobody uses, and the others when their users are done."""
        for cluster_id in list(self._cached):
            await self._retire(cluster_id)

    async def _take(self, cluster_id: uuid.UUID, kubeconfig: bytes) -> _Cached:
        async with self._lock:
            cached = self._cached.get(cluster_id)
            if cached is None or cached.kubeconfig != kubeconfig:
                await self._retire(cluster_id)
                if len(self._cached) >= self._most:
                    await self._retire(next(iter(self._cached)))
                cached = _Cached(
                    kubeconfig, untrusted_client(kubeconfig, allow_loopback=self._allow_loopback)
                )
                self._cached[cluster_id] = cached
            self._cached.move_to_end(cluster_id)
            cached.users += 1
            return cached

    async def _retire(self, cluster_id: uuid.UUID) -> None:
        cached = self._cached.pop(cluster_id, None)
        if cached is not None:
            cached.retired = True
            if not cached.users:
                await cached.client.close()


async def _rest(cached: _Cached) -> None:
    """Close the connections of a client that nobody uses, and the client itself if it is retired."""
    if cached.retired:
        await cached.client.close()
    else:
        cached.client.close_idle()


def _remedy(cluster: ManagedCluster, error: Exception) -> str:
    """Return what happened to a token, and what makes a new one. A 401 may pass, so the token is kept meanwhile."""
    happened = f"{cluster.name} rejected the token of this manager ({reason_of(error)})"
    if cluster.has_upload:
        return f"{happened}: the next health check makes a new one with the uploaded kubeconfig"
    return f"{happened}, and the uploaded kubeconfig was discarded: upload a new one (PATCH with kubeconfig)"

"""Long-lived clients of registered clusters, and what is read through them."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.fleet.managers import connections_to
from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ManagedCluster
from kapsa.fleet.infrastructure.clusters.clients import ClusterClients
from kapsa.fleet.infrastructure.crds.live_resources import ClusterResources
from kapsa.fleet.infrastructure.postgres.registry.rollout_registry import PostgresRegistry
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster
from kapsa.runtime import Client, load_untrusted
from tests.eventually import eventually
from tests.fleet.orchestrator.conftest import Registry
from tests.fleet.rollout_harness import managed_cluster

ADMIN = Principal("ada", frozenset({Role.ADMIN}))


async def test_a_client_is_shared_until_its_token_is_renewed(registry: Registry, kubeconfig: str) -> None:
    request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig)
    cluster = (await registry.clusters.register(ADMIN, request)).cluster
    async with registry.clients.client(cluster.id) as first, registry.clients.client(cluster.id) as second:
        assert first is second
        registry.database.set_clock(cluster.created_at + timedelta(hours=4))
        async with registry.clients.client(cluster.id) as renewed:
            assert renewed is not first
            assert await renewed.read("/version")
        assert await first.read("/version")  # a user of the old one is not cut off
    with pytest.raises(UnknownObject, match="no cluster"):
        async with registry.clients.client(uuid.uuid4()):
            pass
    registry.database.set_clock(None)
    await registry.clusters.delete(ADMIN, "dev-1")


async def test_a_client_that_nobody_uses_stays_without_connections(
    registry: Registry, kubeconfig: str
) -> None:
    request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig)
    cluster = (await registry.clusters.register(ADMIN, request)).cluster
    port = urlsplit(load_untrusted(kubeconfig, allow_loopback=True).server).port
    assert port is not None

    async def connections() -> int:
        return connections_to(os.getpid(), {port})

    async with registry.clients.client(cluster.id) as first:
        async with registry.clients.client(cluster.id) as second:
            await asyncio.gather(first.read("/version"), second.read("/version"))
        assert await connections() > 0, "somebody uses it still"
        assert await first.read("/version")
    await eventually(connections, lambda count: count == 0, "no connection", seconds=5)
    async with registry.clients.client(cluster.id) as later:
        assert later is first
        assert await later.read("/version")
    await registry.clusters.delete(ADMIN, "dev-1")


class HundredClusters:
    """A hundred registered clusters, as repository, credentials and database."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig.encode()
        self.clusters = {
            each.id: each for each in (managed_cluster(f"dev-{number}") for number in range(100))
        }

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def by_id(self, connection: Any, cluster_id: uuid.UUID) -> ManagedCluster:
        return self.clusters[cluster_id]

    async def access(self, cluster: ManagedCluster) -> bytes:
        return self.kubeconfig


async def test_the_clients_of_a_hundred_clusters_are_kept(kubeconfig: str) -> None:
    hundred: Any = HundredClusters(kubeconfig)
    clients = ClusterClients(hundred, hundred, hundred, allow_loopback=True)

    async def sweep() -> list[Client]:
        used: list[Client] = []
        for each in hundred.clusters:
            async with clients.client(each) as client:
                used.append(client)
        return used

    first, second = await sweep(), await sweep()
    assert all(earlier is later for earlier, later in zip(first, second, strict=True))
    await clients.close()


async def test_resources_of_a_lost_cluster_are_unreadable_with_a_reason(registry: Registry) -> None:
    async with DevCluster(tls=True) as lost:
        content = Path(lost.kubeconfig).read_text()
        request = RegisterCluster("dev-1", ClusterEnvironment.DEV, content, discard_upload=True)
        cluster = (await registry.clusters.register(ADMIN, request)).cluster
    resources = ClusterResources(registry.clients.client)
    with pytest.raises(ResourcesUnreadable):
        await resources.definition(cluster.id, "widgets.example.com")
    registry.database.set_clock(cluster.created_at + timedelta(hours=7))
    with pytest.raises(ResourcesUnreadable, match="was discarded"):
        await resources.definition(cluster.id, "widgets.example.com")


async def test_the_engine_reads_what_is_registered(registry: Registry, kubeconfig: str) -> None:
    request = RegisterCluster("dev-1", ClusterEnvironment.DEV, kubeconfig)
    cluster = (await registry.clusters.register(ADMIN, request)).cluster
    engine = PostgresRegistry()
    async with registry.database.transaction() as connection:
        assert await engine.clusters(connection) == [cluster]
        assert await engine.cluster(connection, cluster.id) == cluster
        assert await engine.cluster(connection, uuid.uuid4()) is None
        assert await engine.operator(connection, "widget") is None
    await registry.clusters.delete(ADMIN, "dev-1")

"""Long-lived clients of registered clusters, and what is read through them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.infrastructure.crds.live_resources import ClusterResources
from kapsa.fleet.infrastructure.postgres.registry.rollout_registry import PostgresRegistry
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster
from tests.fleet.orchestrator.conftest import Registry

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

"""The use cases of operators and clusters on a real database, a real vault and real clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.charts.published_charts import PublishedCharts
from kapsa.fleet.infrastructure.clusters.clients import ClusterClients
from kapsa.fleet.infrastructure.clusters.gateway import KubernetesGateway
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.registry.adoptions import Adoptions
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials
from kapsa.fleet.orchestrator.registry.cluster_monitor import ClusterMonitor
from kapsa.fleet.orchestrator.registry.clusters import Clusters
from kapsa.fleet.orchestrator.registry.operators import Operators
from tests.fleet.audit_recorder import AuditRecorder


class Registry(msgspec.Struct, frozen=True):
    """The use cases of one manager, and what they stand on."""

    database: Database
    operators: Operators
    clusters: Clusters
    credentials: ClusterCredentials
    monitor: ClusterMonitor
    adoptions: Adoptions
    clients: ClusterClients
    audit: AuditRecorder
    gateway: KubernetesGateway


@pytest.fixture
def audit() -> AuditRecorder:
    return AuditRecorder()


@pytest.fixture
def vault() -> LocalVault:
    return LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "test")))


def make_registry(
    database: Database,
    vault: LocalVault,
    audit: AuditRecorder,
    charts: PublishedCharts,
    *,
    allow_loopback: bool = True,
    cluster_role: str = "cluster-admin",
) -> Registry:
    repository, gateway = PostgresClusters(), KubernetesGateway(allow_loopback=allow_loopback)
    credentials = ClusterCredentials(database, repository, gateway, vault, audit, cluster_role=cluster_role)
    monitor = ClusterMonitor(database, repository, gateway, credentials, audit)
    adoptions = Adoptions(
        database, repository, PostgresOperators(), gateway, credentials, charts, vault, audit
    )
    clusters = Clusters(database, repository, gateway, credentials, adoptions, audit)
    operators = Operators(database, PostgresOperators(), charts, vault, audit)
    clients = ClusterClients(database, repository, credentials, allow_loopback=allow_loopback)
    return Registry(database, operators, clusters, credentials, monitor, adoptions, clients, audit, gateway)


@pytest_asyncio.fixture
async def charts() -> AsyncIterator[PublishedCharts]:
    http = GuardedHttpClient(address_guard=None, timeout=60)
    yield PublishedCharts(http, allow_http=True)
    await http.close()


@pytest_asyncio.fixture
async def registry(
    database: Database, vault: LocalVault, audit: AuditRecorder, charts: PublishedCharts
) -> AsyncIterator[Registry]:
    made = make_registry(database, vault, audit, charts)
    yield made
    await made.clients.close()


@pytest.fixture
def kubeconfig(secure_cluster: DevCluster) -> str:
    """The kubeconfig of its administrator."""
    return Path(secure_cluster.kubeconfig).read_text()

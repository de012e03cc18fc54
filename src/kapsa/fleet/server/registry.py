"""The registry of a manager: operators and clusters, built on its database, vault and audit trail."""

from datetime import timedelta

import msgspec

from kapsa.adapters.http.address_guard import (
    AddressGuard,
    reject_internal_address,
    reject_metadata_address,
)
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.fleet.infrastructure.charts.published_charts import PublishedCharts
from kapsa.fleet.infrastructure.clusters.clients import ClusterClients
from kapsa.fleet.infrastructure.clusters.gateway import KubernetesGateway
from kapsa.fleet.infrastructure.crds.live_resources import ClusterResources
from kapsa.fleet.infrastructure.postgres.crds.crd_repository import PostgresCrds
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.orchestrator.crds.use_cases import Crds
from kapsa.fleet.orchestrator.ports.audit import AuditTrail
from kapsa.fleet.orchestrator.ports.telemetry import RegistryMeter
from kapsa.fleet.orchestrator.ports.vault import KeyVault
from kapsa.fleet.orchestrator.registry.adoptions import Adoptions
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials
from kapsa.fleet.orchestrator.registry.cluster_monitor import ClusterMonitor
from kapsa.fleet.orchestrator.registry.clusters import Clusters
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.operators import Operators
from kapsa.fleet.settings import FleetSettings

__all__ = ["RegistryServices", "address_guard", "build_registry"]

_DOWNLOAD_SECONDS = 60.0
"""Enough for an archive of 16 MB over a slow line."""


class RegistryServices(msgspec.Struct, frozen=True, kw_only=True):
    """The use cases of operators, clusters and CRDs, and what the rollout engine needs of them."""

    operators: Operators
    clusters: Clusters
    adoptions: Adoptions
    monitor: ClusterMonitor
    operator_secrets: OperatorSecrets
    clients: ClusterClients
    resources: ClusterResources
    crds: Crds
    charts: PublishedCharts
    http_client: GuardedHttpClient
    gateway: KubernetesGateway
    credentials: ClusterCredentials

    async def close(self) -> None:
        """Close connections to clusters and repositories."""
        await self.clients.close()
        await self.http_client.close()


def address_guard(settings: FleetSettings) -> AddressGuard:
    """Return the judge of addresses that the manager connects to. Metadata services are never among them."""
    return reject_metadata_address if settings.internal_addresses else reject_internal_address


def build_registry(
    settings: FleetSettings, database: Database, vault: KeyVault, audit: AuditTrail, meter: RegistryMeter
) -> RegistryServices:
    """Build the registry. Addresses of clusters and repositories are judged as the settings say."""
    internal = settings.internal_addresses
    operators, clusters = PostgresOperators(), PostgresClusters()
    http = GuardedHttpClient(address_guard=address_guard(settings), timeout=_DOWNLOAD_SECONDS)
    charts = PublishedCharts(http, allow_http=settings.plain_http_repositories)
    lifetime = timedelta(minutes=settings.cluster_token_minutes)
    gateway = KubernetesGateway(allow_loopback=internal, token_lifetime=lifetime)
    role = settings.cluster_role
    credentials = ClusterCredentials(database, clusters, gateway, vault, audit, cluster_role=role)
    adoptions = Adoptions(database, clusters, operators, gateway, credentials, charts, vault, audit)
    clients = ClusterClients(database, clusters, credentials, allow_loopback=internal)
    resources = ClusterResources(clients.client)
    return RegistryServices(
        operators=Operators(database, operators, charts, vault, audit),
        clusters=Clusters(database, clusters, gateway, credentials, adoptions, audit, meter=meter),
        adoptions=adoptions,
        monitor=ClusterMonitor(database, clusters, gateway, credentials, audit),
        operator_secrets=OperatorSecrets(operators, vault),
        clients=clients,
        resources=resources,
        crds=Crds(database, PostgresCrds(), operators, resources, audit, meter=meter),
        charts=charts,
        http_client=http,
        gateway=gateway,
        credentials=credentials,
    )

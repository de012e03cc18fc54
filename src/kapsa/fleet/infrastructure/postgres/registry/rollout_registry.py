"""Registered operators and clusters as the rollout engine reads them."""

import uuid

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.tables.registry import operator_version
from kapsa.fleet.orchestrator.ports.clusters import ClusterFilter

__all__ = ["PostgresRegistry"]

_PAGE = 500


class PostgresRegistry:
    """Operators and clusters in the caller's transaction."""

    def __init__(self) -> None:
        self._operators = PostgresOperators()
        self._clusters = PostgresClusters()

    async def operator(self, connection: AsyncConnection, name: str) -> ManagedOperator | None:
        """Return an operator by its name."""
        return await self._operators.get(connection, name)

    async def version(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str
    ) -> OperatorVersion | None:
        """Return a version of an operator."""
        return await self._operators.version(connection, operator_id, version)

    async def clusters(self, connection: AsyncConnection) -> list[ManagedCluster]:
        """Return all clusters, in the order of their names."""
        clusters: list[ManagedCluster] = []
        while True:
            after = clusters[-1].name if clusters else ""
            page = await self._clusters.page(connection, after=after, limit=_PAGE, chosen=ClusterFilter())
            clusters += page
            if len(page) < _PAGE:
                return clusters

    async def cluster(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> ManagedCluster | None:
        """Return a cluster by its id; None once it is deleted."""
        return await self._clusters.by_id(connection, cluster_id)

    async def withdraw(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str, reason: str
    ) -> None:
        """Mark a version as bad, so that nothing deploys it again without an override."""
        same = (operator_version.c.operator_id == operator_id, operator_version.c.version == version)
        await connection.execute(update(operator_version).where(*same).values(withdrawn_reason=reason))

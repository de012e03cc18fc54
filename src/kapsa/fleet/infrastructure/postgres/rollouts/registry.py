"""Registered operators and clusters, as the rollout engine reads them."""

import uuid

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.clusters import ManagedCluster
from kapsa.fleet.domain.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster, operator_version

__all__ = ["PostgresRegistry"]

_CLUSTER = tuple(
    cluster.c[field.name].label(field.encode_name) for field in msgspec.structs.fields(ManagedCluster)
)


class PostgresRegistry:
    """The rows of operators and clusters."""

    def __init__(self) -> None:
        self._operators = PostgresOperators()

    async def operator(self, connection: AsyncConnection, name: str) -> ManagedOperator | None:
        """Return an operator by its name."""
        return await self._operators.get(connection, name)

    async def version(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str
    ) -> OperatorVersion | None:
        """Return a version of an operator."""
        return await self._operators.version(connection, operator_id, version)

    async def clusters(self, connection: AsyncConnection) -> list[ManagedCluster]:
        """Return all clusters, by name."""
        rows = await connection.execute(select(*_CLUSTER).order_by(cluster.c.name))
        return [msgspec.convert(dict(row), ManagedCluster) for row in rows.mappings()]

    async def cluster(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> ManagedCluster | None:
        """Return a cluster by its id; None once it is deleted."""
        rows = await connection.execute(select(*_CLUSTER).where(cluster.c.id == cluster_id))
        row = rows.mappings().one_or_none()
        return None if row is None else msgspec.convert(dict(row), ManagedCluster)

    async def withdraw(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str, reason: str
    ) -> None:
        """Mark a version as bad. The first reason stays."""
        table = operator_version
        await connection.execute(
            update(table)
            .where(
                table.c.operator_id == operator_id,
                table.c.version == version,
                table.c.withdrawn_reason == "",
            )
            .values(withdrawn_reason=reason)
        )

"""Installations: the release that the fleet left on each cluster."""

import uuid

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster_operator, operator_version
from kapsa.fleet.infrastructure.postgres.tables.rollouts import installation
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation

__all__ = ["InstallationRows"]


class InstallationRows:
    """The rows of installations."""

    async def get(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> OperatorInstallation | None:
        """Return the release that the fleet left on a cluster, or adopted there."""
        query = select(installation).where(
            installation.c.cluster_id == cluster_id, installation.c.operator_id == operator_id
        )
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return await self._adopted(connection, cluster_id, operator_id)
        release = ReleaseRef(row.release_name, row.namespace)
        return OperatorInstallation(
            cluster_id, operator_id, release, row.revision, row.version, row.chart_digest, row.deployment_id
        )

    async def _adopted(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> OperatorInstallation | None:
        """Return a release that was there before the manager and has been adopted."""
        table, versions = cluster_operator, operator_version
        same = (versions.c.operator_id == table.c.operator_id) & (
            versions.c.version == table.c.adopted_version
        )
        query = (
            select(table, versions.c.chart_digest)
            .join(versions, same, isouter=True)
            .where(table.c.cluster_id == cluster_id, table.c.operator_id == operator_id)
        )
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        release = ReleaseRef(row.release, row.namespace)
        return OperatorInstallation(
            cluster_id,
            operator_id,
            release,
            row.adopted_revision,
            row.adopted_version,
            row.chart_digest or "",
        )

    async def record(self, connection: AsyncConnection, made: OperatorInstallation) -> None:
        """Record a release in place of the one before. Revision 0 removes the record."""
        if made.revision == 0:
            await connection.execute(
                delete(installation).where(
                    installation.c.cluster_id == made.cluster_id,
                    installation.c.operator_id == made.operator_id,
                )
            )
            return
        values = {
            "release_name": made.release.name,
            "namespace": made.release.namespace,
            "revision": made.revision,
            "version": made.version,
            "chart_digest": made.chart_digest,
            "deployment_id": made.deployment_id,
            "updated_at": NOW,
        }
        row = insert(installation).values(cluster_id=made.cluster_id, operator_id=made.operator_id, **values)
        await connection.execute(
            row.on_conflict_do_update(index_elements=["cluster_id", "operator_id"], set_=values)
        )

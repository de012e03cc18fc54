"""Evidence about installed releases: what the engine's checks have left in the rows of deployments."""

import uuid

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.orchestrator.operator_health import ReleaseReading

__all__ = ["PostgresHealthReadings"]

# Evidence about another revision than the one that is installed says nothing.
_READINGS = text("""
    SELECT c.name, i.version, i.revision, d.progress
    FROM (
        SELECT cluster_id, operator_id, version, revision FROM fleet.installation
        UNION ALL
        SELECT a.cluster_id, a.operator_id, a.adopted_version, a.adopted_revision
        FROM fleet.cluster_operator a
        WHERE NOT EXISTS (
            SELECT 1 FROM fleet.installation x
            WHERE x.cluster_id = a.cluster_id AND x.operator_id = a.operator_id
        )
    ) i
    JOIN fleet.cluster c ON c.id = i.cluster_id
    LEFT JOIN LATERAL (
        SELECT t.document -> 'progress' AS progress
        FROM fleet.deployment_cluster t JOIN fleet.deployment p ON p.id = t.deployment_id
        WHERE t.cluster_id = i.cluster_id AND t.operator_id = i.operator_id
          AND (t.document ->> 'revision')::integer = i.revision
        ORDER BY p.created_at DESC LIMIT 1
    ) d ON true
    WHERE i.operator_id = :operator
    ORDER BY c.name
""")


class PostgresHealthReadings:
    """Evidence in PostgreSQL."""

    async def readings(self, connection: AsyncConnection, operator_id: uuid.UUID) -> list[ReleaseReading]:
        """Return the newest evidence for each cluster that the operator is installed on, by name."""
        rows = (await connection.execute(_READINGS, {"operator": operator_id})).all()
        return [_reading(row.name, row.version, row.revision, row.progress) for row in rows]


def _reading(cluster: str, version: str, revision: int, progress: object) -> ReleaseReading:
    gate = msgspec.convert(progress or {}, GateProgress)
    return ReleaseReading(cluster, version, revision, gate.last, gate.reason, gate.message)

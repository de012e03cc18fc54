"""Readings as the API shows them: the last one of each release that is installed."""

import uuid
from collections import Counter
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.orchestrator.operator_health import HealthWord, ReleaseReading

__all__ = ["PostgresHealthReadings"]

_ALL_READINGS = """
    SELECT i.operator_id, c.name, i.version, i.revision, r.health, r.checked_at
    FROM (
        SELECT cluster_id, operator_id, version, revision, release_name AS release, namespace
        FROM fleet.installation
        UNION ALL
        SELECT a.cluster_id, a.operator_id, a.adopted_version, a.adopted_revision, a.release, a.namespace
        FROM fleet.cluster_operator a
        WHERE NOT EXISTS (
            SELECT 1 FROM fleet.installation x
            WHERE x.cluster_id = a.cluster_id AND x.operator_id = a.operator_id
        )
    ) i
    JOIN fleet.cluster c ON c.id = i.cluster_id
    LEFT JOIN fleet.release_reading r
      ON r.cluster_id = i.cluster_id AND r.namespace = i.namespace AND r.release = i.release
"""
_READINGS = text(f"{_ALL_READINGS} WHERE i.operator_id = :operator ORDER BY c.name")
# The health of an operator as `OperatorHealths` reports it, without decoding thousands of readings.
_COUNTED = """
    SELECT word, count(*) AS operators FROM (
        SELECT CASE
            WHEN bool_or(fresh AND health @> '{"checks": [{"evidence": "Failing"}]}') THEN 'Unhealthy'
            WHEN bool_and(
                fresh AND health @> '{"checks": [{"evidence": "Healthy"}]}'
                AND NOT health @> '{"checks": [{"evidence": "Unknown"}]}'
            ) THEN 'Healthy'
            ELSE 'Unknown'
        END AS word
        FROM (
            SELECT operator_id, health, coalesce(
                checked_at >= :since AND (health ->> 'revision')::bigint = revision, false
            ) AS fresh
            FROM readings
        ) judged
        GROUP BY operator_id
    ) operators
    GROUP BY word
"""
_COUNTS = text(f"WITH readings AS ({_ALL_READINGS}) {_COUNTED}")


class PostgresHealthReadings:
    """Readings in PostgreSQL."""

    async def readings(self, connection: AsyncConnection, operator_id: uuid.UUID) -> list[ReleaseReading]:
        """Return the last reading for each cluster that the operator is installed on, by name."""
        rows = (await connection.execute(_READINGS, {"operator": operator_id})).all()
        return [_reading(row.name, row.version, row.revision, row.health, row.checked_at) for row in rows]

    async def count(self, connection: AsyncConnection, *, since: datetime) -> Counter[HealthWord]:
        """Count the operators that are installed anywhere by their health."""
        rows = await connection.execute(_COUNTS, {"since": since})
        return Counter({HealthWord(row.word): row.operators for row in rows})


def _reading(
    cluster: str, version: str, revision: int, health: object, checked_at: datetime | None
) -> ReleaseReading:
    read = None if health is None else msgspec.convert(health, OperatorHealth)
    return ReleaseReading(cluster, version, revision, read, checked_at)

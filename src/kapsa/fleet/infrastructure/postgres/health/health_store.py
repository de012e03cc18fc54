"""The store of health: readings, baselines, sweeps, and which operator a release belongs to."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.health.memory import HealthMemory, ResourceBaseline
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.postgres.due_rows import DueRows
from kapsa.fleet.infrastructure.postgres.tables.health import cluster_sweep, health_baseline, release_reading
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.registry import (
    cluster,
    operator_version,
    operator_version_crd,
)
from kapsa.fleet.orchestrator.ports.health import ReleaseOrigin, StoredReading, SweepClaim

__all__ = ["PostgresHealth"]

_FORGOTTEN_AFTER = timedelta(days=1)
"""The age at which a reading that nothing renews is deleted: its release is gone."""

_SWEEPS = DueRows(cluster_sweep, key="cluster_id", due_at="next_sweep_at", fence="fence")
_BY_DEPLOYMENT = text("""
    SELECT operator_id, document ->> 'version' AS version, document ->> 'chartDigest' AS chart_digest
    FROM fleet.deployment WHERE id = :deployment
""")
_BY_RELEASE = text("""
    SELECT operator_id, version, chart_digest FROM fleet.installation
    WHERE cluster_id = :cluster AND release_name = :release AND namespace = :namespace
    UNION ALL
    SELECT a.operator_id, a.adopted_version, v.chart_digest FROM fleet.cluster_operator a
    LEFT JOIN fleet.operator_version v ON v.operator_id = a.operator_id AND v.version = a.adopted_version
    WHERE a.cluster_id = :cluster AND a.release = :release AND a.namespace = :namespace
    LIMIT 1
""")
_RELEASES = text("""
    SELECT release_name AS release, namespace FROM fleet.installation WHERE cluster_id = :cluster
    UNION
    SELECT a.release, a.namespace FROM fleet.cluster_operator a
    WHERE a.cluster_id = :cluster AND NOT EXISTS (
        SELECT 1 FROM fleet.installation x
        WHERE x.cluster_id = a.cluster_id AND x.operator_id = a.operator_id
    )
    ORDER BY 2, 1
""")
# A baseline holds for the deployment that it was taken for: outside of one, every resource counts.
_BASELINE = text("""
    SELECT b.baseline FROM fleet.health_baseline b
    WHERE b.cluster_id = :cluster AND b.operator_id = :operator AND EXISTS (
        SELECT 1 FROM fleet.deployment_cluster t
        WHERE t.cluster_id = b.cluster_id AND t.operator_id = b.operator_id AND t.active
    )
""")


class PostgresHealth:
    """Health in PostgreSQL, in the caller's transaction."""

    async def origin(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, release: ReleaseRef, deployment: str
    ) -> ReleaseOrigin | None:
        """Return the operator of a release, by the deployment that its labels name, or else by its name."""
        row = None
        if deployment_id := _uuid(deployment):
            row = (await connection.execute(_BY_DEPLOYMENT, {"deployment": deployment_id})).one_or_none()
        if row is None:
            named = {"cluster": cluster_id, "release": release.name, "namespace": release.namespace}
            row = (await connection.execute(_BY_RELEASE, named)).one_or_none()
        if row is None:
            return None
        crds = await self._crds(connection, row.operator_id, row.version)
        return ReleaseOrigin(row.operator_id, row.chart_digest or "", crds)

    async def chart_origin(
        self, connection: AsyncConnection, operator_id: uuid.UUID, chart_digest: str
    ) -> ReleaseOrigin:
        """Return the CRDs of an operator's chart."""
        table = operator_version
        same = (table.c.operator_id == operator_id, table.c.chart_digest == chart_digest)
        version = (await connection.execute(select(table.c.version).where(*same).limit(1))).scalar()
        crds = await self._crds(connection, operator_id, version) if version is not None else ()
        return ReleaseOrigin(operator_id, chart_digest, crds)

    async def _crds(
        self, connection: AsyncConnection, operator_id: uuid.UUID, version: str
    ) -> tuple[str, ...]:
        table = operator_version_crd
        same = (table.c.operator_id == operator_id, table.c.version == version)
        return tuple((await connection.execute(select(table.c.name).where(*same))).scalars())

    async def releases(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> Sequence[ReleaseRef]:
        """Return the releases that the fleet has installed or adopted on a cluster."""
        rows = await connection.execute(_RELEASES, {"cluster": cluster_id})
        return [ReleaseRef(row.release, row.namespace) for row in rows]

    async def reading(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, release: ReleaseRef
    ) -> StoredReading | None:
        """Return the last reading of a release."""
        query = select(release_reading).where(*_same(cluster_id, release))
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        health = msgspec.convert(row.health, OperatorHealth)
        return StoredReading(health, msgspec.convert(row.memory, HealthMemory), row.checked_at)

    async def put_reading(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, release: ReleaseRef, reading: StoredReading
    ) -> None:
        """Store a reading in place of the one before. A cluster that is deleted meanwhile keeps none."""
        values = {
            "health": _storable(msgspec.to_builtins(reading.health)),
            "memory": _storable(msgspec.to_builtins(reading.memory)),
            "checked_at": reading.checked_at,
        }
        if await self._registered(connection, cluster_id):
            key = {"cluster_id": cluster_id, "namespace": release.namespace, "release": release.name}
            row = insert(release_reading).values(**key, **values)
            await connection.execute(row.on_conflict_do_update(index_elements=list(key), set_=values))

    async def _registered(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> bool:
        """Return whether a cluster exists, and keep it from being deleted in this transaction."""
        query = (
            select(cluster.c.id).where(cluster.c.id == cluster_id).with_for_update(read=True, key_share=True)
        )
        return (await connection.execute(query)).first() is not None

    async def baseline(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> ResourceBaseline | None:
        """Return the baseline of the active deployment of an operator on a cluster; None if there is none."""
        named = {"cluster": cluster_id, "operator": operator_id}
        stored = (await connection.execute(_BASELINE, named)).scalar()
        return msgspec.convert(stored, ResourceBaseline) if stored is not None else None

    async def put_baseline(
        self,
        connection: AsyncConnection,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        baseline: ResourceBaseline,
    ) -> None:
        """Store a baseline in place of the one before."""
        values: dict[str, Any] = {"baseline": _storable(msgspec.to_builtins(baseline))}
        if await self._registered(connection, cluster_id):
            row = insert(health_baseline).values(cluster_id=cluster_id, operator_id=operator_id, **values)
            keys = ["cluster_id", "operator_id"]
            await connection.execute(row.on_conflict_do_update(index_elements=keys, set_=values))

    async def claim_sweeps(
        self,
        connection: AsyncConnection,
        *,
        interval: timedelta,
        limit: int,
        at_work: Sequence[uuid.UUID] = (),
    ) -> Sequence[SweepClaim]:
        """Claim clusters whose sweep is due. No other replica gets them before the next one is due."""
        new = insert(cluster_sweep).from_select(["cluster_id", "next_sweep_at"], select(cluster.c.id, NOW))
        await connection.execute(new.on_conflict_do_nothing())
        fences = await _SWEEPS.claim(connection, interval=interval, limit=limit, at_work=at_work)
        return [SweepClaim(cluster_id, fence) for cluster_id, fence in fences.items()]

    async def next_sweep(self, connection: AsyncConnection) -> datetime | None:
        """Return the time of the next sweep."""
        return await _SWEEPS.next_due(connection)

    async def finish_sweep(self, connection: AsyncConnection, claim: SweepClaim) -> bool:
        """Forget readings of releases that are gone. Return False if a later sweep was claimed meanwhile."""
        table = cluster_sweep
        current = select(table.c.fence).where(table.c.cluster_id == claim.cluster_id)
        if (await connection.execute(current)).scalar() != claim.fence:
            return False
        old = release_reading.c.checked_at < NOW - _FORGOTTEN_AFTER
        await connection.execute(
            delete(release_reading).where(release_reading.c.cluster_id == claim.cluster_id, old)
        )
        return True


def _same(cluster_id: uuid.UUID, release: ReleaseRef) -> tuple[Any, ...]:
    table = release_reading
    return (
        table.c.cluster_id == cluster_id,
        table.c.namespace == release.namespace,
        table.c.release == release.name,
    )


def _storable(value: Any) -> Any:
    """Return a value without the one character that JSON in PostgreSQL cannot hold."""
    match value:
        case str():
            return value.replace("\0", "")
        case dict():
            return {_storable(key): _storable(each) for key, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
    return value


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None

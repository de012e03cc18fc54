"""Clusters, their credentials, health, inventories and adopted releases in PostgreSQL."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row, Select, Text, Update, delete, exists, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ClusterHealth, ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow
from kapsa.fleet.infrastructure.postgres.due_rows import DueRows
from kapsa.fleet.infrastructure.postgres.rollouts.erasure import erase_from_history
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.registry import (
    cluster,
    cluster_credential,
    cluster_inventory,
    cluster_operator,
    operator,
)
from kapsa.fleet.orchestrator.ports.clusters import (
    Adoption,
    CheckClaim,
    ClusterCredential,
    ClusterFilter,
)

__all__ = ["PostgresClusters"]

_UPLOAD = "cluster-upload"
_CHECKS = DueRows(cluster, key="id", due_at="next_check_at", fence="checks")


class PostgresClusters:
    """Clusters in PostgreSQL. Each method works in the caller's transaction."""

    async def insert(self, connection: AsyncConnection, registered: ManagedCluster, uid: str) -> bool:
        """Insert a cluster. Return False if its name or its UID is taken."""
        columns = _columns(registered) | {
            "id": registered.id,
            "created_at": registered.created_at,
            "created_by": registered.created_by,
            "health": msgspec.to_builtins(registered.health),
            "cluster_uid": uid or None,
            "next_check_at": registered.created_at,
        }
        query = insert(cluster).values(columns).on_conflict_do_nothing().returning(cluster.c.id)
        return (await connection.execute(query)).first() is not None

    async def update(self, connection: AsyncConnection, changed: ManagedCluster, *, expected: int) -> bool:
        """Write a cluster but for its health. Return False unless its stored version is `expected`."""
        query = (
            update(cluster)
            .where(cluster.c.id == changed.id, cluster.c.version == expected)
            .values(_columns(changed))
            .returning(cluster.c.id)
        )
        return (await connection.execute(query)).first() is not None

    async def delete(
        self, connection: AsyncConnection, cluster_id: uuid.UUID
    ) -> Sequence[tuple[uuid.UUID, str]] | None:
        """Delete a cluster with its credentials, its part in the history, and the values that operators have for it.

        Return id and name of those operators, or None if something still refers to the cluster.
        """
        query = select(cluster.c.name).where(cluster.c.id == cluster_id)
        name: str | None = (await connection.execute(query)).scalar()
        if name is None:
            return []
        # Before the cluster's own row, as the engine locks them.
        await erase_from_history(connection, cluster_id, name)
        try:
            async with connection.begin_nested():
                await connection.execute(delete(cluster).where(cluster.c.id == cluster_id))
        except IntegrityError:
            return None
        changed = await connection.execute(_without_values(name).returning(operator.c.id, operator.c.name))
        return [(row.id, row.name) for row in changed]

    async def get(self, connection: AsyncConnection, name: str) -> ManagedCluster | None:
        """Return a cluster by its name."""
        row = (await connection.execute(_clusters().where(cluster.c.name == name))).first()
        return _cluster(row) if row is not None else None

    async def by_id(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> ManagedCluster | None:
        """Return a cluster by its id."""
        row = (await connection.execute(_clusters().where(cluster.c.id == cluster_id))).first()
        return _cluster(row) if row is not None else None

    async def name_of_uid(self, connection: AsyncConnection, uid: str) -> str | None:
        """Return the name under which the cluster with this UID is registered."""
        query = select(cluster.c.name).where(cluster.c.cluster_uid == uid)
        name: str | None = (await connection.execute(query)).scalar()
        return name

    async def uid(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> str:
        """Return the UID of a cluster; empty if it is unknown."""
        query = select(cluster.c.cluster_uid).where(cluster.c.id == cluster_id)
        return (await connection.execute(query)).scalar() or ""

    async def page(
        self, connection: AsyncConnection, *, after: str, limit: int, chosen: ClusterFilter
    ) -> list[ManagedCluster]:
        """Return clusters in the order of their names, after a name."""
        query = _clusters().where(cluster.c.name > after).order_by(cluster.c.name).limit(limit)
        if chosen.environment is not None:
            query = query.where(cluster.c.environment == chosen.environment.value)
        if chosen.labels:
            query = query.where(cluster.c.labels.contains(chosen.labels))
        if chosen.prefix:
            query = query.where(cluster.c.name.startswith(chosen.prefix, autoescape=True))
        return [_cluster(row) for row in await connection.execute(query)]

    async def put_credential(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, credential: ClusterCredential
    ) -> bool:
        """Store a credential in place of the version before it. Return False if another one was faster."""
        table = cluster_credential
        columns = msgspec.structs.asdict(credential)
        query = (
            insert(table)
            .values(columns | {"cluster_id": cluster_id})
            .on_conflict_do_update(
                index_elements=[table.c.cluster_id, table.c.purpose],
                set_=columns,
                where=table.c.version == credential.version - 1,
            )
            .returning(table.c.version)
        )
        return (await connection.execute(query)).first() is not None

    async def erase_credential(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, purpose: str
    ) -> bool:
        """Erase a credential. Return False if there was none."""
        table = cluster_credential
        query = delete(table).where(table.c.cluster_id == cluster_id, table.c.purpose == purpose)
        return (await connection.execute(query)).rowcount > 0

    async def credential(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, purpose: str
    ) -> ClusterCredential | None:
        """Return the credential for a purpose."""
        table = cluster_credential
        query = select(table.c.purpose, table.c.version, table.c.sealed, table.c.renew_at, table.c.expires_at)
        query = query.where(table.c.cluster_id == cluster_id, table.c.purpose == purpose)
        row = (await connection.execute(query)).first()
        return ClusterCredential(*row) if row is not None else None

    async def claim_checks(
        self,
        connection: AsyncConnection,
        *,
        interval: timedelta,
        limit: int,
        at_work: Sequence[uuid.UUID] = (),
    ) -> Sequence[CheckClaim]:
        """Claim clusters whose health check is due. No other replica gets them before the next one is due."""
        fences = await _CHECKS.claim(connection, interval=interval, limit=limit, at_work=at_work)
        if not fences:
            return []
        rows = await connection.execute(_clusters().where(cluster.c.id.in_(fences)))
        return [CheckClaim(_cluster(row), fences[row.id]) for row in rows]

    async def next_check(self, connection: AsyncConnection) -> datetime | None:
        """Return the time of the next health check."""
        return await _CHECKS.next_due(connection)

    async def put_health(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, fence: int, health: ClusterHealth
    ) -> bool:
        """Write the health of a cluster. Return False if a later check was claimed meanwhile."""
        query = (
            update(cluster)
            .where(cluster.c.id == cluster_id, cluster.c.checks == fence)
            .values(health=msgspec.to_builtins(health))
            .returning(cluster.c.id)
        )
        return (await connection.execute(query)).first() is not None

    async def put_inventory(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, inventory: ClusterInventory
    ) -> None:
        """Store an inventory in place of the one before."""
        columns = {"taken_at": inventory.taken_at, "content": msgspec.to_builtins(inventory)}
        query = (
            insert(cluster_inventory)
            .values(columns | {"cluster_id": cluster_id})
            .on_conflict_do_update(index_elements=[cluster_inventory.c.cluster_id], set_=columns)
        )
        await connection.execute(query)

    async def inventory(self, connection: AsyncConnection, cluster_id: uuid.UUID) -> ClusterInventory | None:
        """Return the last inventory."""
        query = select(cluster_inventory.c.content).where(cluster_inventory.c.cluster_id == cluster_id)
        content = (await connection.execute(query)).scalar()
        return msgspec.convert(content, ClusterInventory) if content is not None else None

    async def put_adoption(self, connection: AsyncConnection, adoption: Adoption) -> None:
        """Store an adoption in place of the one before."""
        columns = {
            "release": adoption.release,
            "namespace": adoption.namespace,
            "adopted_revision": adoption.revision,
            "adopted_version": adoption.version,
            "adopted_at": NOW,
            "adopted_by": adoption.adopted_by,
            "values_version": adoption.values_version,
            "values": adoption.values,
        }
        query = (
            insert(cluster_operator)
            .values(columns | {"cluster_id": adoption.cluster_id, "operator_id": adoption.operator_id})
            .on_conflict_do_update(
                index_elements=[cluster_operator.c.cluster_id, cluster_operator.c.operator_id], set_=columns
            )
        )
        await connection.execute(query)

    async def adoption(
        self, connection: AsyncConnection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> Adoption | None:
        """Return the adoption of an operator's release."""
        table = cluster_operator
        query = select(table).where(table.c.cluster_id == cluster_id, table.c.operator_id == operator_id)
        columns = (await connection.execute(query)).mappings().first()
        if columns is None:
            return None
        return Adoption(
            cluster_id,
            operator_id,
            columns["release"],
            columns["namespace"],
            columns["adopted_revision"],
            columns["adopted_version"],
            columns["adopted_by"],
            columns["values_version"],
            columns["values"],
        )


def _without_values(name: str) -> Update:
    """Return the statement that erases what operators have for a cluster: another may get its name."""
    values = operator.c.cluster_values
    rest = values.op("-", return_type=JSONB())(literal(name, Text))
    changes = {"cluster_values": rest, "version": operator.c.version + 1}
    return update(operator).where(values.has_key(name)).values(changes)


def _clusters() -> Select[Any]:
    upload = exists().where(
        cluster_credential.c.cluster_id == cluster.c.id, cluster_credential.c.purpose == _UPLOAD
    )
    return select(cluster, upload.label("has_upload"))


def _columns(registered: ManagedCluster) -> dict[str, Any]:
    return {
        "name": registered.name,
        "environment": registered.environment.value,
        "labels": registered.labels,
        "server": registered.server,
        "windows": msgspec.to_builtins(registered.windows),
        "freezes": msgspec.to_builtins(registered.freezes),
        "version": registered.version,
    }


def _cluster(row: Row[Any]) -> ManagedCluster:
    return ManagedCluster(
        id=row.id,
        name=row.name,
        environment=ClusterEnvironment(row.environment),
        labels=row.labels,
        server=row.server,
        health=msgspec.convert(row.health, ClusterHealth),
        created_at=row.created_at,
        created_by=row.created_by,
        windows=msgspec.convert(row.windows, tuple[MaintenanceWindow, ...]),
        freezes=msgspec.convert(row.freezes, tuple[ChangeFreeze, ...]),
        has_upload=row.has_upload,
        version=row.version,
    )

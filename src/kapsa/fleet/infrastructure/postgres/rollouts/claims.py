"""Claims: the right to work on a row, taken in a short transaction and carried by a fence."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Table, Update, and_, func, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.rollouts import deployment, deployment_cluster
from kapsa.fleet.orchestrator.ports.rollouts import RolloutClaim

__all__ = ["claim_rows", "end_lease", "next_due", "renew_lease"]


async def claim_rows(
    connection: AsyncConnection, owner: str, lease: timedelta, limit: int, *, clusters: bool
) -> list[RolloutClaim]:
    """Claim due rows that no other replica holds, deployments first, and increment the fence of each."""
    claims = [
        RolloutClaim(row.id, None, row.fence)
        for row in await _claim(connection, deployment, ("id",), owner, lease, limit)
    ]
    if clusters and len(claims) < limit:
        keys = ("deployment_id", "cluster_id")
        rows = await _claim(connection, deployment_cluster, keys, owner, lease, limit - len(claims))
        claims += [RolloutClaim(row.deployment_id, row.cluster_id, row.fence) for row in rows]
    return claims


async def _claim(
    connection: AsyncConnection,
    table: Table,
    keys: tuple[str, ...],
    owner: str,
    lease: timedelta,
    limit: int,
) -> list[Any]:
    due = (
        select(*(table.c[key] for key in keys))
        .where(table.c.next_run_at <= NOW, or_(table.c.lease_until.is_(None), table.c.lease_until <= NOW))
        .order_by(table.c.next_run_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    statement = (
        update(table)
        .where(and_(*(table.c[key] == due.c[key] for key in keys)))
        .values(fence=table.c.fence + 1, lease_owner=owner, lease_until=NOW + lease)
        .returning(*(table.c[key] for key in keys), table.c.fence)
    )
    return list(await connection.execute(statement))


async def renew_lease(connection: AsyncConnection, claim: RolloutClaim, lease: timedelta) -> bool:
    """Prolong a lease. Return False if the row has been claimed again or is gone."""
    result = await connection.execute(_update(claim).values(lease_until=NOW + lease))
    return result.rowcount == 1


async def end_lease(connection: AsyncConnection, claim: RolloutClaim) -> bool:
    """End a lease before its time. Return False if the row has been claimed again or is gone."""
    result = await connection.execute(_update(claim).values(lease_owner="", lease_until=None))
    return result.rowcount == 1


def _update(claim: RolloutClaim) -> Update:
    """Return an update of the claimed row, which does nothing once it has been claimed again."""
    if claim.cluster_id is None:
        rows = update(deployment).where(deployment.c.id == claim.deployment_id)
        return rows.where(deployment.c.fence == claim.fence)
    table = deployment_cluster
    rows = update(table).where(
        table.c.deployment_id == claim.deployment_id, table.c.cluster_id == claim.cluster_id
    )
    return rows.where(table.c.fence == claim.fence)


async def next_due(connection: AsyncConnection) -> datetime | None:
    """Return the time at which the next row can be claimed: due, and free of its last claim."""
    moments = [
        select(func.greatest(table.c.next_run_at, table.c.lease_until).label("moment")).where(
            table.c.next_run_at.is_not(None)
        )
        for table in (deployment, deployment_cluster)
    ]
    every = union_all(*moments).subquery()
    moment: datetime | None = (await connection.execute(select(func.min(every.c.moment)))).scalar_one()
    return moment

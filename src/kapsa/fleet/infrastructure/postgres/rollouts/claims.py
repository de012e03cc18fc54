"""Claims: the right to work on a row, taken in a short transaction and carried by a fence."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Table, Update, and_, func, or_, select, tuple_, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.targets import TargetGoal
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.infrastructure.postgres.tables.rollouts import deployment, deployment_cluster
from kapsa.fleet.orchestrator.ports.rollouts import HeldLease, RolloutClaim

__all__ = ["claim_rows", "end_lease", "held_leases", "next_due", "renew_lease"]

_KEYS = {deployment: ("id",), deployment_cluster: ("deployment_id", "cluster_id")}
_PLANS = deployment.c.phase == DeploymentPhase.PLANNING.value
_BACK = deployment_cluster.c.goal == TargetGoal.ROLL_BACK.value
_URGENCY = (
    (deployment, ~_PLANS, True),
    (deployment_cluster, _BACK, True),
    (deployment, _PLANS, False),
    (deployment_cluster, ~_BACK, False),
)
"""The rows in the order in which they are claimed, and whether they may take what is kept: decisions, rollbacks, plans,
which hold their slot until every cluster has answered, and the other clusters."""


async def held_leases(connection: AsyncConnection) -> list[HeldLease]:
    """Return the leases on rows that are due."""
    held: list[HeldLease] = []
    for table, keys in _KEYS.items():
        columns = [table.c[key] for key in (*keys, "fence", "lease_until")]
        query = select(*columns).where(table.c.next_run_at <= NOW, table.c.lease_until.is_not(None))
        for deployment_id, *cluster, fence, until in await connection.execute(query):
            held.append(HeldLease(deployment_id, cluster[0] if cluster else None, fence, until))
    return held


async def claim_rows(
    connection: AsyncConnection,
    owner: str,
    lease: timedelta,
    limit: int,
    *,
    kept: int,
    clusters: bool,
    lapsed: Collection[HeldLease],
) -> list[RolloutClaim]:
    """Claim due rows that no other replica holds, in the order of their urgency, and increment the fence of each.

    The last `kept` claims of the limit are left to decisions, which take a moment, and to rollbacks.
    """
    claims: list[RolloutClaim] = []
    for table, chosen, urgent in _URGENCY:
        left = limit - len(claims) - (0 if urgent else kept)
        if left > 0 and (clusters or table is deployment):
            claims += await _claim(connection, table, chosen, lapsed, owner, lease, left)
    return claims


async def _claim(
    connection: AsyncConnection,
    table: Table,
    chosen: ColumnElement[bool],
    lapsed: Collection[HeldLease],
    owner: str,
    lease: timedelta,
    limit: int,
) -> list[RolloutClaim]:
    keys = _KEYS[table]
    seen = tuple_(*(table.c[key] for key in (*keys, "fence", "lease_until")))
    free = [
        (*filter(None, (each.deployment_id, each.cluster_id)), each.fence, each.until)
        for each in lapsed
        if (each.cluster_id is None) is (table is deployment)
    ]
    due = (
        select(*(table.c[key] for key in keys))
        .where(chosen, table.c.next_run_at <= NOW, or_(table.c.lease_until.is_(None), seen.in_(free)))
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
    return [
        RolloutClaim(deployment_id, cluster[0] if cluster else None, fence)
        for deployment_id, *cluster, fence in await connection.execute(statement)
    ]


async def renew_lease(connection: AsyncConnection, claim: RolloutClaim, lease: timedelta) -> bool:
    """Prolong a lease. Return False if it was released, or the row has been claimed again or is gone.

    The new end is another one even if the clock stood still or went back: others see by it that the holder lives.
    """
    table = deployment if claim.cluster_id is None else deployment_cluster
    later = func.greatest(NOW + lease, table.c.lease_until + timedelta(microseconds=1))
    held = _update(claim).where(table.c.lease_until.is_not(None))
    result = await connection.execute(held.values(lease_until=later))
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
    """Return the time at which the next row becomes due; those that are due and held are left out."""
    moments = [
        select(table.c.next_run_at.label("moment")).where(
            table.c.next_run_at.is_not(None),
            or_(table.c.lease_until.is_(None), table.c.next_run_at > NOW),
        )
        for table in _KEYS
    ]
    every = union_all(*moments).subquery()
    moment: datetime | None = (await connection.execute(select(func.min(every.c.moment)))).scalar_one()
    return moment

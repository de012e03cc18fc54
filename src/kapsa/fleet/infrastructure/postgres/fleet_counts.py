"""The size of the fleet, counted in the database: operators, clusters by health, active deployments by phase."""

from collections.abc import Iterable

import msgspec
from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.deployments import ACTIVE_PHASES
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster, operator
from kapsa.fleet.infrastructure.postgres.tables.rollouts import deployment

__all__ = ["FleetCounts", "count_fleet"]


class FleetCounts(msgspec.Struct, frozen=True):
    """The number of operators, clusters and active deployments."""

    operators: int
    clusters: dict[str, int]
    """By the condition of their last health check."""
    deployments: dict[str, int]
    """Those that have not ended, by phase."""


async def count_fleet(connection: AsyncConnection) -> FleetCounts:
    """Return the size of the fleet now."""
    condition = cluster.c.health["condition"].astext
    phase = deployment.c.phase
    active = phase.in_([each.value for each in ACTIVE_PHASES])
    operators = await connection.execute(select(func.count()).select_from(operator))
    clusters = await connection.execute(select(condition, func.count()).group_by(condition))
    deployments = await connection.execute(select(phase, func.count()).where(active).group_by(phase))
    return FleetCounts(
        operators=operators.scalar_one(),
        clusters=_by_name(clusters),
        deployments=_by_name(deployments),
    )


def _by_name(rows: Iterable[Row[str, int]]) -> dict[str, int]:
    return {row[0]: row[1] for row in rows}

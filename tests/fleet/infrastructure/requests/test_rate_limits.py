"""Rate limits: exact over any period, per caller, over replicas, and under clocks that jump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.requests.rate_limits import PostgresRateLimits
from kapsa.fleet.orchestrator.ports.requests.rate_limits import (
    CREATE_CLUSTER,
    CREATE_DEPLOYMENT,
    LIST_CLUSTERS,
    LIST_OPERATORS,
    RateLimit,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


def at(database: Database, seconds: float) -> None:
    database.set_clock(START + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("limit", "requests"),
    [(CREATE_DEPLOYMENT, 10), (LIST_OPERATORS, 60), (LIST_CLUSTERS, 60), (CREATE_CLUSTER, 5)],
)
async def test_the_limits_of_the_specification_hold_per_minute(
    database: Database, limit: RateLimit, requests: int
) -> None:
    limits = PostgresRateLimits(database)
    at(database, 0)
    assert [await limits.hit("ada", limit) for _ in range(requests)] == [0] * requests
    assert await limits.hit("ada", limit) == 60
    assert await limits.hit("bob", limit) == 0


async def test_the_wait_is_until_the_oldest_request_leaves_the_period(database: Database) -> None:
    limits = PostgresRateLimits(database)
    for second in (0, 10, 20, 30, 40):
        at(database, second)
        assert await limits.hit("ada", CREATE_CLUSTER) == 0
    at(database, 45)
    assert await limits.hit("ada", CREATE_CLUSTER) == 15
    at(database, 59.5)
    assert await limits.hit("ada", CREATE_CLUSTER) == 1
    at(database, 60)
    assert await limits.hit("ada", CREATE_CLUSTER) == 0
    assert await limits.hit("ada", CREATE_CLUSTER) == 10


async def test_rejected_requests_do_not_prolong_the_wait(database: Database) -> None:
    limits = PostgresRateLimits(database)
    at(database, 0)
    for _ in range(50):
        await limits.hit("ada", CREATE_CLUSTER)
    at(database, 60)
    assert await limits.hit("ada", CREATE_CLUSTER) == 0


async def test_replicas_share_a_limit_under_concurrency(
    database: Database, replica: Callable[[], Database]
) -> None:
    replicas = [PostgresRateLimits(each) for each in (database, replica(), replica())]
    waits = await asyncio.gather(
        *(limits.hit("ada", CREATE_DEPLOYMENT) for limits in replicas for _ in range(8))
    )
    assert waits.count(0) == 10


async def test_a_clock_that_was_set_back_locks_nobody_out(database: Database) -> None:
    limits = PostgresRateLimits(database)
    at(database, 7200)
    for _ in range(5):
        await limits.hit("ada", CREATE_CLUSTER)
    at(database, 0)
    assert await limits.hit("ada", CREATE_CLUSTER) == 0


async def test_a_row_never_grows_beyond_the_limit(database: Database) -> None:
    limits = PostgresRateLimits(database)
    for second in range(100):
        at(database, second)
        await limits.hit("ada", CREATE_CLUSTER)
    async with database.transaction() as connection:
        sizes = await connection.execute(text("SELECT cardinality(hits) FROM fleet.rate_limit"))
        assert sizes.scalar_one() <= CREATE_CLUSTER.requests


async def test_the_counters_are_in_an_unlogged_table(database: Database) -> None:
    async with database.transaction() as connection:
        kind = await connection.execute(
            text("SELECT relpersistence FROM pg_class WHERE oid = 'fleet.rate_limit'::regclass")
        )
        assert kind.scalar_one() in ("u", b"u")

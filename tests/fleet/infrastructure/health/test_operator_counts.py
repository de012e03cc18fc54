"""The number of operators by their health: counted by the database, as the reports of the operators have it."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta

import msgspec
from sqlalchemy import text

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.health.memory import HealthMemory
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.health.health_readings import PostgresHealthReadings
from kapsa.fleet.infrastructure.postgres.health.health_store import PostgresHealth
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.tables.rollouts import installation
from kapsa.fleet.orchestrator.operator_health import HealthWord, OperatorHealths
from kapsa.fleet.orchestrator.ports.health import StoredReading
from tests.fleet.examples import START, cluster_id
from tests.fleet.infrastructure.health.operator_fixture import registered_operator
from tests.fleet.rollout_harness import managed_cluster

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
HEALTHY, FAILING, UNKNOWN = Evidence.HEALTHY, Evidence.FAILING, Evidence.UNKNOWN
REVISION = 2


class Reading(msgspec.Struct, frozen=True):
    """A reading of a release that has revision 2."""

    evidence: tuple[Evidence, ...]
    revision: int = REVISION
    seconds_ago: int = 0


OPERATORS: dict[str, list[Reading | None]] = {
    "healthy": [Reading((HEALTHY, HEALTHY)), Reading((HEALTHY,), seconds_ago=180)],
    "failing-once": [Reading((HEALTHY,)), Reading((HEALTHY, FAILING, UNKNOWN)), None],
    "unknown-once": [Reading((HEALTHY,)), Reading((HEALTHY, UNKNOWN))],
    "without-checks": [Reading(())],
    "never-read": [Reading((HEALTHY,)), None],
    "failed-before-this-revision": [Reading((FAILING,), revision=1), Reading((HEALTHY,))],
    "failed-long-ago": [Reading((FAILING,), seconds_ago=181), Reading((HEALTHY,))],
    "healthy-long-ago": [Reading((HEALTHY,), seconds_ago=181)],
}


async def install(database: Database, name: str, readings: list[Reading | None]) -> None:
    """Record an operator that is installed on as many clusters as it has readings."""
    operator = msgspec.structs.replace(registered_operator(), id=uuid.uuid4(), name=name)
    async with database.transaction() as connection:
        await PostgresOperators().insert(connection, operator)
        for number, reading in enumerate(readings):
            on = cluster_id(f"dev-{number}")
            await connection.execute(
                installation.insert().values(
                    cluster_id=on,
                    operator_id=operator.id,
                    release_name=name,
                    namespace="operators",
                    revision=REVISION,
                    version="2.0.0",
                    chart_digest="",
                )
            )
            if reading is not None:
                checks = tuple(HealthCheck(CheckKind.PODS, each, "Seen", "") for each in reading.evidence)
                moment = START - timedelta(seconds=reading.seconds_ago)
                stored = StoredReading(OperatorHealth(reading.revision, "", checks), HealthMemory(), moment)
                await PostgresHealth().put_reading(connection, on, ReleaseRef(name, "operators"), stored)


async def register_clusters(database: Database) -> OperatorHealths:
    database.set_clock(START)
    async with database.transaction() as connection:
        for number in range(3):
            name = f"dev-{number}"
            await PostgresClusters().insert(connection, managed_cluster(name), name)
    return OperatorHealths(database, PostgresOperators(), PostgresClusters(), PostgresHealthReadings())


async def test_operators_are_counted_as_their_reports_have_them(database: Database) -> None:
    health = await register_clusters(database)
    assert await health.count() == Counter()
    for name, readings in OPERATORS.items():
        await install(database, name, readings)
    reports = {name: (await health.report(ADMIN, name)).overall_health for name in OPERATORS}
    assert await health.count() == Counter(reports.values())
    assert {name for name, word in reports.items() if word is not HealthWord.UNKNOWN} == {
        "healthy",
        "failing-once",
    }


async def test_a_reading_of_a_newer_replica_does_not_end_the_count(database: Database) -> None:
    health = await register_clusters(database)
    await install(database, "healthy", [Reading((HEALTHY,))])
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE fleet.release_reading SET health = jsonb_set(health, '{checks,0,kind}', '\"New\"')")
        )
    assert await health.count() == Counter({HealthWord.HEALTHY: 1})

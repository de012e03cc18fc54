"""Retention: old rows go, young and unfinished ones stay, and the audit chain stays whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from kapsa.fleet.infrastructure.audit.expiry import AuditExpiry
from kapsa.fleet.infrastructure.audit.sealer import AuditSealer
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.audit.verifier import verify_chain
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.retention import Retention, foundation_rules
from kapsa.fleet.infrastructure.requests.idempotency import PostgresIdempotencyKeys
from kapsa.fleet.infrastructure.requests.rate_limits import PostgresRateLimits
from kapsa.fleet.orchestrator.ports.audit import AuditEntry
from kapsa.fleet.orchestrator.ports.requests.rate_limits import CREATE_CLUSTER

START = datetime(2030, 1, 1, tzinfo=UTC)
RULES = foundation_rules(outbox=timedelta(days=30))


async def fill(database: Database) -> None:
    entry = AuditEntry(actor="ada", action="a", object_kind="k", object_id="1", payload={"name": "prod"})
    async with database.transaction() as connection:
        await PostgresAuditTrail(bytes(32)).record(connection, entry)
        for state in ("NULL, NULL", "fleet.now(), NULL", "NULL, fleet.now()"):
            await connection.execute(
                text(
                    f"INSERT INTO fleet.outbox (kind, payload, delivered_at, abandoned_at) VALUES ('x', '{{}}', {state})"
                )
            )
    await PostgresIdempotencyKeys(database).claim("ada", str(await database.now()), b"")
    await PostgresRateLimits(database).hit("ada", CREATE_CLUSTER)


async def test_each_table_has_its_own_limit(database: Database) -> None:
    retention = Retention(database, RULES)
    database.set_clock(START)
    await fill(database)
    assert await retention.sweep() == {}
    database.set_clock(START + timedelta(days=29))
    assert await retention.sweep() == {"fleet.idempotency_key": 1, "fleet.rate_limit": 1}
    database.set_clock(START + timedelta(days=31))
    assert await retention.sweep() == {"fleet.outbox": 2}
    async with database.transaction() as connection:
        unsent = await connection.execute(text("SELECT count(*) FROM fleet.outbox"))
        assert unsent.scalar_one() == 1


async def test_the_audit_log_expires_and_its_chain_stays_whole(database: Database) -> None:
    database.set_clock(START)
    await fill(database)
    database.set_clock(START + timedelta(days=390))
    await fill(database)
    await AuditSealer(database, bytes(32)).seal()
    database.set_clock(START + timedelta(days=401))
    expiry = AuditExpiry(database, PostgresAuditTrail(bytes(32)), timedelta(days=400))
    assert await expiry.sweep() == 1
    assert await expiry.sweep() == 0
    report = await verify_chain(database, bytes(32))
    assert (report.links, report.unsealed, report.erased, report.findings) == (2, 1, 1, ())
    await AuditSealer(database, bytes(32)).seal()
    assert (await verify_chain(database, bytes(32))).findings == ()


async def test_more_rows_than_a_batch_are_deleted(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            text("""INSERT INTO fleet.rate_limit SELECT n::text, 'x', '{}', fleet.now() - interval '1 day'
                    FROM generate_series(1, 2500) n""")
        )
    assert await Retention(database, RULES).sweep() == {"fleet.rate_limit": 2500}

"""Transactions, the shared clock, and the schema that the migrations make."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from kapsa.fleet.infrastructure.postgres.database import Database, DatabaseError
from kapsa.fleet.infrastructure.postgres.migration import migrate, newest_revision
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW, declared_metadata
from kapsa.fleet.orchestrator.ports.transactions import DatabaseUnavailable
from tests.fleet.conftest import PostgresServer

MOMENT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


async def test_a_transaction_commits_at_the_end_of_its_block_and_rolls_back_when_it_raises(
    database: Database,
) -> None:
    insert = text("INSERT INTO fleet.outbox (kind, payload) VALUES (:kind, '{}')")
    async with database.transaction() as connection:
        await connection.execute(insert, {"kind": "kept"})

    async def insert_and_fail() -> None:
        async with database.transaction() as connection:
            await connection.execute(insert, {"kind": "lost"})
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await insert_and_fail()
    async with database.transaction() as connection:
        kinds = (await connection.execute(text("SELECT kind FROM fleet.outbox"))).scalars().all()
    assert kinds == ["kept"]


async def test_the_clock_is_that_of_the_database_unless_a_test_sets_it(database: Database) -> None:
    assert abs(await database.now() - datetime.now(UTC)) < timedelta(seconds=5)
    database.set_clock(MOMENT)
    assert await database.now() == MOMENT
    database.set_clock(None)
    assert abs(await database.now() - datetime.now(UTC)) < timedelta(seconds=5)


async def test_a_set_clock_holds_for_every_transaction_even_after_a_rollback(database: Database) -> None:
    database.set_clock(MOMENT)
    with pytest.raises(RuntimeError):
        async with database.transaction() as connection:
            raise RuntimeError
    async with database.transaction() as first, database.transaction() as second:
        for connection in (first, second):
            assert (await connection.execute(text("SELECT fleet.now()"))).scalar_one() == MOMENT


async def test_a_transaction_that_gets_no_connection_in_time_finds_the_database_busy(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(postgres.create_empty_database(), connections=1)
    monkeypatch.setattr(database.engine.pool, "_timeout", 0.05)
    try:
        async with database.transaction():
            with pytest.raises(DatabaseUnavailable, match="no connection is free"):
                async with database.transaction():
                    raise AssertionError("there is only one connection")
    finally:
        await database.close()


async def test_a_server_process_that_stops_answering_fails_its_transaction_and_the_next_one_works(
    database_url: URL,
) -> None:
    database = Database(database_url, answer_limit=1.0)
    started = time.monotonic()
    try:
        async with database.transaction() as connection:
            backend = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        with stopped(backend):
            async with asyncio.timeout(20):
                # The pool finds the silent connection by itself, and opens another one.
                assert (await database.now()).tzinfo is not None
        async with database.transaction() as connection:
            backend = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()

        async def read_from_a_silent_server() -> None:
            async with database.transaction() as connection:
                with stopped(backend):
                    await connection.execute(text("SELECT 1"))

        async with asyncio.timeout(20):
            with pytest.raises(DatabaseUnavailable, match="cannot be used now"):
                await read_from_a_silent_server()
            await database.now()
    finally:
        await database.close()
    assert time.monotonic() - started < 15


@pytest.mark.long
async def test_a_check_of_a_server_process_that_hangs_ends_within_half_a_minute(database_url: URL) -> None:
    database = Database(database_url, connections=1)
    try:
        async with database.transaction() as connection:
            backend = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        with stopped(backend):
            started = time.monotonic()
            with pytest.raises(DatabaseError, match=r"gave no answer in 10 seconds\. Look for"):
                await asyncio.wait_for(database.check(), 60)
            assert time.monotonic() - started < 30
        await database.check()
    finally:
        await database.close()


async def test_a_statement_has_a_limit_and_a_migration_has_none(database: Database) -> None:
    show = text("SHOW statement_timeout")
    async with database.transaction() as connection:
        assert (await connection.execute(show)).scalar_one() == "1min"
    async with database.unlimited_transaction() as connection:
        assert (await connection.execute(show)).scalar_one() == "0"
    async with database.transaction() as connection:
        assert (await connection.execute(show)).scalar_one() == "1min"


async def test_a_statement_that_may_take_long_is_not_cut_off(database_url: URL) -> None:
    database = Database(database_url, answer_limit=0.5)
    slow = text("SELECT pg_sleep(1.5)")
    try:
        async with database.unlimited_transaction() as connection:
            await connection.execute(slow)
        with pytest.raises(DatabaseUnavailable):
            async with database.transaction() as connection:
                await connection.execute(slow)
    finally:
        await database.close()


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Stop a process that the test's server has started, and let it go on afterwards."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


async def test_each_replica_has_a_clock_of_its_own(
    database: Database, replica: Callable[[], Database]
) -> None:
    other = replica()
    other.set_clock(MOMENT)
    assert await other.now() == MOMENT
    assert await database.now() < MOMENT


async def test_a_comparison_with_the_clock_uses_an_index(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = await connection.execute(
            text("EXPLAIN SELECT 1 FROM fleet.rate_limit WHERE expires_at < fleet.now()")
        )
        assert any("Index Cond" in line for line in plan.scalars())


def test_a_clock_without_a_time_zone_is_rejected() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Database("postgresql://localhost/fleet").set_clock(datetime(2030, 1, 1))  # noqa: DTZ001


async def test_the_migrations_make_exactly_the_declared_tables(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        options = {
            "include_schemas": True,
            "compare_type": True,
            "compare_server_default": True,
            "version_table_schema": "fleet",
            "include_name": lambda name, kind, parents: kind != "schema" or name == "fleet",
        }
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, declared_metadata()))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_a_migrated_database_is_not_migrated_again(database: Database) -> None:
    assert await migrate(database) == []


async def test_replicas_that_start_together_migrate_once(postgres: PostgresServer) -> None:
    url = postgres.create_empty_database()
    replicas = [Database(url) for _ in range(3)]
    applied = await asyncio.gather(*(migrate(each) for each in replicas))
    assert sorted(map(bool, applied)) == [False, False, True]
    assert max(applied, key=len)[-1] == newest_revision()
    for each in replicas:
        await each.close()
    postgres.drop_database(url)


async def test_a_database_that_is_newer_than_the_program_is_refused_in_one_line(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE fleet.alembic_version SET version_num = '9999_future'"))
    with pytest.raises(
        DatabaseError, match=r"at revision 9999_future, which is newer than this program"
    ) as refused:
        await migrate(database)
    assert "\n" not in str(refused.value)


async def test_a_failed_migration_leaves_nothing(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import command

    def upgrade_then_fail(config: object, revision: str) -> None:
        upgrade(config, revision)  # type: ignore[arg-type]
        raise RuntimeError("on purpose")

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgrade_then_fail)
    url = postgres.create_empty_database()
    empty = Database(url)
    with pytest.raises(RuntimeError, match="on purpose"):
        await migrate(empty)
    async with empty.engine.connect() as connection:
        schemas = await connection.execute(text("SELECT 1 FROM pg_namespace WHERE nspname = 'fleet'"))
        assert schemas.first() is None
    await empty.close()
    postgres.drop_database(url)


async def test_a_role_that_may_not_migrate_is_reported_in_one_line(postgres: PostgresServer) -> None:
    url = postgres.create_empty_database()
    owner = Database(url)
    async with owner.transaction() as connection:
        await connection.execute(text("CREATE ROLE guest"))
        await connection.execute(text(f"ALTER DATABASE {url.database} SET role = 'guest'"))
    await owner.close()
    guest = Database(url)
    with pytest.raises(
        DatabaseError, match=r"cannot be migrated: permission denied for database .*owner"
    ) as refused:
        await migrate(guest)
    assert "\n" not in str(refused.value)
    await guest.close()
    postgres.drop_database(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user:geheim@host/fleet", r"starts with mysql://, but must start with postgresql://"),
        ("geheim", r"the address of the database is invalid"),
    ],
)
def test_an_address_of_another_kind_is_rejected_without_its_password(url: str, message: str) -> None:
    with pytest.raises(DatabaseError, match=message) as rejected:
        Database(url)
    assert "geheim" not in str(rejected.value)


async def test_the_error_of_a_statement_does_not_show_its_values(database: Database) -> None:
    insert = text("INSERT INTO fleet.outbox (kind, payload) VALUES (:kind, 'no json')")

    async def fail() -> None:
        async with database.transaction() as connection:
            await connection.execute(insert, {"kind": "planted-secret"})

    with pytest.raises(DBAPIError) as failed:
        await fail()
    assert "planted-secret" not in str(failed.value)


async def test_an_unreachable_database_is_reported_without_its_password() -> None:
    unreachable = Database("postgres://user:geheim@127.0.0.1:1/fleet")
    with pytest.raises(DatabaseError, match=r"the database fleet at 127\.0\.0\.1 cannot be used") as reported:
        await unreachable.check()
    assert "geheim" not in str(reported.value)
    await unreachable.close()


def test_the_sql_clock_is_the_function_of_the_schema() -> None:
    assert str(NOW) == "fleet.now()"


def test_a_database_for_a_test_is_made_within_50_milliseconds(postgres: PostgresServer) -> None:
    """Hundreds of tests make one each. The best of many, because the machine may be busy."""
    seconds = [1.0]
    for _ in range(100):
        if min(seconds) < 0.05:
            break
        started = time.perf_counter()
        url = postgres.create_database()
        seconds.append(time.perf_counter() - started)
        postgres.drop_database(url)
    assert min(seconds) < 0.05, seconds

"""The database: a pool of connections, transactions, and the time that all replicas share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import func, make_url, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from kapsa.fleet.infrastructure.postgres.bounded_connection import (
    ANSWER_LIMIT,
    TCP_LIMITS,
    BoundedConnection,
)
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.orchestrator.ports.transactions import DatabaseUnavailable

__all__ = ["Database", "DatabaseError", "database_url"]

_SESSION = (
    "-c timezone=UTC -c statement_timeout=60s -c lock_timeout=30s -c idle_in_transaction_session_timeout=60s"
)
_CHECK_LIMIT = 10.0


class DatabaseError(Exception):
    """A database that cannot be used as it is."""

    for_the_user = True


def database_url(text: str) -> URL:
    """Return the address of a database for psycopg.

    Raises DatabaseError if it is not an address of a PostgreSQL database. The message has no password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseError(
            "the address of the database is invalid: use postgresql://user@host:5432/database"
        ) from None
    if url.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise DatabaseError(
            f"the address of the database starts with {url.drivername}://, but must start with postgresql://"
        )
    return url.set(drivername="postgresql+psycopg")


class Database:
    """A PostgreSQL database with the schema `fleet`."""

    def __init__(self, url: str | URL, *, connections: int = 20, answer_limit: float = ANSWER_LIMIT) -> None:
        self.url = database_url(url) if isinstance(url, str) else url
        self._answer_limit = answer_limit
        self.engine: AsyncEngine = create_async_engine(
            self.url,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=30,
            pool_pre_ping=True,
            hide_parameters=True,  # an error with the values of its statement would put them into the log
            connect_args={
                "options": _SESSION,
                "application_name": "kapsa-fleet",
                "connect_timeout": 10,
                "async_creator_fn": self._connect,
                **TCP_LIMITS,
            },
        )
        self._clock: datetime | None = None

    async def _connect(self, *args: Any, **options: Any) -> BoundedConnection:
        connection = await BoundedConnection.connect(*args, **options)
        connection.answer_limit = self._answer_limit
        return connection

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
        """Open a transaction. It commits when the block ends, and rolls back when the block raises.

        With `snapshot`, it only reads, and all its statements see the database at the same moment. Raises
        DatabaseUnavailable if the server is away, busy or out of space.
        """
        try:
            async with self.engine.begin() as connection:
                await self._prepare(connection, snapshot=snapshot)
                yield connection
        except OperationalError as error:
            raise DatabaseUnavailable(
                f"{self.description} cannot be used now: {_first_line(error)}"
            ) from error
        except PoolTimeout as error:
            raise DatabaseUnavailable(
                f"{self.description} cannot be used now: no connection is free"
            ) from error

    @asynccontextmanager
    async def unlimited_transaction(self, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
        """Open a transaction whose statements may take as long as they need.

        For commands of a person that go through whole tables: migrations, and the verification of the audit log.
        """
        async with self.transaction(snapshot=snapshot) as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert isinstance(driver, BoundedConnection)
            await connection.execute(text("SET LOCAL statement_timeout = 0"))
            driver.answer_limit = None
            try:
                yield connection
            finally:
                driver.answer_limit = self._answer_limit

    async def _prepare(self, connection: AsyncConnection, *, snapshot: bool) -> None:
        if snapshot:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        if self._clock is not None:
            # Local to the transaction: a setting of the session would be undone by a rollback.
            setting = func.set_config("fleet.now", self._clock.isoformat(), True)
            await connection.execute(select(setting))

    async def now(self) -> datetime:
        """Return the time of the database, which is the time of all replicas."""
        async with self.transaction() as connection:
            moment: datetime = (await connection.execute(select(NOW))).scalar_one()
            return moment

    def set_clock(self, moment: datetime | None) -> None:
        """Set the time of every transaction that this database opens from now on, or free it. For tests."""
        if moment is not None and moment.tzinfo is None:
            raise ValueError("the clock needs a time with a time zone")
        self._clock = moment

    async def check(self) -> None:
        """Raise DatabaseError unless the server answers within seconds and is new enough."""
        try:
            async with asyncio.timeout(_CHECK_LIMIT), self.engine.connect() as connection:
                version = int((await connection.execute(text("SHOW server_version_num"))).scalar_one())
        except (OperationalError, DBAPIError) as error:
            raise DatabaseError(f"{self.description} cannot be used: {_first_line(error)}") from None
        except (TimeoutError, PoolTimeout):
            raise DatabaseError(
                f"{self.description} cannot be used: it gave no answer in {_CHECK_LIMIT:.0f} seconds. "
                "Look for a server process that hangs, or for a full disk or network in its way"
            ) from None
        if version < 150_000:
            raise DatabaseError(
                f"{self.description} is PostgreSQL {version // 10_000}; the fleet manager needs 15 or newer"
            )

    @property
    def description(self) -> str:
        """The database for messages: without user and password."""
        where = self.url.host or self.url.query.get("host") or "localhost"
        return f"the database {self.url.database or ''} at {where}"

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()


def _first_line(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__

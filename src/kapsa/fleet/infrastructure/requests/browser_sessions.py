"""Sessions of browsers in PostgreSQL."""

import msgspec
from sqlalchemy import delete, insert, select

from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import browser_session as table
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.orchestrator.ports.requests.browser_sessions import BrowserSession

__all__ = ["PostgresBrowserSessions"]


class PostgresBrowserSessions:
    """The sessions of all browsers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, token_hash: bytes, session: BrowserSession) -> None:
        """Store a session, and delete those that have expired."""
        values = {
            "token_hash": token_hash,
            "principal": msgspec.to_builtins(session.principal),
            "expires_at": session.expires_at,
        }
        async with self._database.transaction() as connection:
            await connection.execute(delete(table).where(table.c.expires_at <= NOW))
            await connection.execute(insert(table).values(values))

    async def get(self, token_hash: bytes) -> BrowserSession | None:
        """Return a session that has not expired."""
        query = select(table.c.principal, table.c.expires_at).where(
            table.c.token_hash == token_hash, table.c.expires_at > NOW
        )
        async with self._database.transaction() as connection:
            row = (await connection.execute(query)).first()
        return BrowserSession(msgspec.convert(row.principal, Principal), row.expires_at) if row else None

    async def delete(self, token_hash: bytes) -> None:
        """End a session."""
        async with self._database.transaction() as connection:
            await connection.execute(delete(table).where(table.c.token_hash == token_hash))

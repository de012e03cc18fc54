"""The whole content of a database as text, to search it for secrets that must not be there."""

from __future__ import annotations

from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.metadata import declared_metadata


async def database_text(database: Database) -> str:
    """Return all rows of all tables. A `bytea` is in hexadecimal, and decoded where it is text."""
    parts = []
    async with database.transaction() as connection:
        for table in declared_metadata().sorted_tables:
            parts += (
                (await connection.execute(text(f"SELECT t::text FROM {table.fullname} t"))).scalars().all()
            )
            for column in table.columns:
                if str(column.type.compile(connection.dialect)) == "BYTEA":
                    query = text(f"SELECT encode({column.name}, 'escape') FROM {table.fullname}")
                    parts += [value or "" for value in (await connection.execute(query)).scalars()]
    return "\n".join(parts)

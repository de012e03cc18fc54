"""Migration of the database to the schema of this program."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import ProgrammingError

from kapsa.fleet.infrastructure.postgres.advisory_locks import AdvisoryLock
from kapsa.fleet.infrastructure.postgres.database import Database, DatabaseError

__all__ = ["has_schema", "migrate", "newest_revision"]

_LOCK = select(func.pg_advisory_xact_lock(*AdvisoryLock.MIGRATION.key))


def newest_revision() -> str:
    """Return the revision that this program needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


async def has_schema(database: Database) -> bool:
    """Return whether the database was migrated at least once."""
    async with database.transaction() as connection:
        table = await connection.execute(text("SELECT to_regclass('fleet.alembic_version')"))
        return table.scalar_one() is not None


async def migrate(database: Database) -> list[str]:
    """Bring the database to the newest revision. Return the revisions that were applied, oldest first.

    Replicas that start together wait for each other. All revisions are one transaction.

    Raises DatabaseError if a newer program has migrated the database, or if our role may not.
    """
    try:
        async with database.unlimited_transaction() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '10min'"))
            await connection.execute(_LOCK)
            await connection.execute(text("CREATE SCHEMA IF NOT EXISTS fleet"))
            return await connection.run_sync(lambda sync: _upgrade(sync, database.description))
    except ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        raise DatabaseError(
            f"{database.description} cannot be migrated: {str(error.orig).splitlines()[0]}. "
            "Make the role of KAPSA_DATABASE_URL the owner of the database"
        ) from None


def _upgrade(connection: Connection, description: str) -> list[str]:
    config = _config()
    config.attributes["connection"] = connection
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    context = MigrationContext.configure(connection, opts={"version_table_schema": "fleet"})
    current = context.get_current_revision()
    if current is not None and current not in chain:
        raise DatabaseError(
            f"{description} is at revision {current}, which is newer than this program ({chain[-1]}): "
            "upgrade the program, or restore a backup from before the upgrade"
        )
    pending = chain if current is None else chain[chain.index(current) + 1 :]
    if pending:
        command.upgrade(config, "head")
    return pending


def _config() -> Config:
    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(folder / "versions").replace("%", "%%"))
    return config

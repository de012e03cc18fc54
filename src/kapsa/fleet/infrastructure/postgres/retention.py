"""Retention: rows that are older than their table's limit are deleted, in small batches."""

from datetime import timedelta

import msgspec
import structlog
from sqlalchemy import TextClause, text

from kapsa.fleet.infrastructure.postgres.database import Database

__all__ = ["Retention", "RetentionRule", "foundation_rules"]

log = structlog.get_logger(__name__)

_BATCH = 1000


class RetentionRule(msgspec.Struct, frozen=True):
    """The limit of one table."""

    table: str
    key: str
    expired: str
    """The SQL of the keys of expired rows, with the parameter `:age`."""
    age: timedelta

    def statement(self) -> TextClause:
        """Return the SQL that deletes one batch."""
        return text(f"DELETE FROM {self.table} WHERE ({self.key}) IN ({self.expired} LIMIT {_BATCH})")  # noqa: S608 - no input of users


def foundation_rules(outbox: timedelta) -> tuple[RetentionRule, ...]:
    """Return the rules of the tables that every area uses, but the audit log, which has its own expiry."""
    return (
        RetentionRule(
            "fleet.outbox",
            "id",
            "SELECT id FROM fleet.outbox"
            " WHERE created_at < fleet.now() - :age AND (delivered_at IS NOT NULL OR abandoned_at IS NOT NULL)",
            outbox,
        ),
        RetentionRule(
            "fleet.idempotency_key",
            "subject, key",
            "SELECT subject, key FROM fleet.idempotency_key WHERE created_at < fleet.now() - :age",
            timedelta(days=2),
        ),
        RetentionRule(
            "fleet.rate_limit",
            "subject, name",
            "SELECT subject, name FROM fleet.rate_limit WHERE expires_at < fleet.now() - :age",
            timedelta(minutes=5),
        ),
    )


class Retention:
    """The rules of all tables."""

    def __init__(self, database: Database, rules: tuple[RetentionRule, ...]) -> None:
        self._database = database
        self._rules = rules

    async def sweep(self) -> dict[str, int]:
        """Delete what is expired. Return the number of rows per table."""
        deleted = {}
        for rule in self._rules:
            if count := await self._apply(rule):
                deleted[rule.table] = count
                log.info("deleted expired rows", table=rule.table, count=count)
        return deleted

    async def _apply(self, rule: RetentionRule) -> int:
        total = 0
        while True:
            async with self._database.transaction() as connection:
                count = (await connection.execute(rule.statement(), {"age": rule.age})).rowcount
            total += count
            if count < _BATCH:
                return total

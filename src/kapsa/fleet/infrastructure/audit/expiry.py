"""Expiry of the audit log: actors and payloads are erased after a time, and the chain says so.

An entry of its own records up to when. The verification accepts missing content before that, and reports any other.
"""

from datetime import timedelta

import structlog
from sqlalchemy import delete, exists, select

from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import audit_content, audit_entry
from kapsa.fleet.orchestrator.ports.audit import AuditEntry

__all__ = ["EXPIRE", "AuditExpiry"]

log = structlog.get_logger(__name__)

EXPIRE = "audit.expire"
"""The action of an entry that records an expiry. Its object is the time before which content was erased."""
_BATCH = 1000


class AuditExpiry:
    """The retention of the audit log."""

    def __init__(self, database: Database, trail: PostgresAuditTrail, age: timedelta) -> None:
        self._database = database
        self._trail = trail
        self._age = age

    async def sweep(self) -> int:
        """Erase the content of entries that are too old. Return the number of entries."""
        cutoff = await self._database.now() - self._age
        old = (
            select(audit_content.c.entry_id)
            .join(audit_entry, audit_entry.c.id == audit_content.c.entry_id)
            .where(audit_entry.c.recorded_at < cutoff)
            .limit(_BATCH)
        )
        async with self._database.transaction() as connection:
            if not (await connection.execute(select(exists(old)))).scalar_one():
                return 0
            await self._trail.record(
                connection,
                AuditEntry(
                    actor="system:retention", action=EXPIRE, object_kind="audit", object_id=cutoff.isoformat()
                ),
            )
        erased = 0
        while True:
            async with self._database.transaction() as connection:
                batch = delete(audit_content).where(audit_content.c.entry_id.in_(old.scalar_subquery()))
                count = (await connection.execute(batch)).rowcount
            erased += count
            if count < _BATCH:
                log.info("erased expired audit content", count=erased, before=cutoff.isoformat())
                return erased

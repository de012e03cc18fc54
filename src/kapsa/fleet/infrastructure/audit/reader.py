"""Pages of the audit trail, newest entries first."""

from typing import Any

import msgspec
from sqlalchemy import select

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import audit_content, audit_entry, audit_seal
from kapsa.fleet.orchestrator.audit import AuditFilter, AuditRecord

__all__ = ["PostgresAuditReader"]


class PostgresAuditReader:
    """The entries of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def before(self, entry_id: int | None, criteria: AuditFilter, count: int) -> list[AuditRecord]:
        """Return up to `count` entries that match, older than this one, newest first."""
        query = (
            select(audit_entry, audit_content.c.actor, audit_content.c.payload, audit_seal.c.sequence)
            .outerjoin(audit_content, audit_content.c.entry_id == audit_entry.c.id)
            .outerjoin(audit_seal, audit_seal.c.entry_id == audit_entry.c.id)
            .where(*_conditions(criteria))
            .order_by(audit_entry.c.id.desc())
            .limit(count)
        )
        if entry_id is not None:
            query = query.where(audit_entry.c.id < entry_id)
        async with self._database.transaction() as connection:
            return [_record(row) for row in (await connection.execute(query)).all()]


def _conditions(criteria: AuditFilter) -> list[Any]:
    equal = {
        audit_content.c.actor: criteria.actor,
        audit_entry.c.action: criteria.action,
        audit_entry.c.object_kind: criteria.object_kind,
        audit_entry.c.object_id: criteria.object_id,
    }
    conditions: list[Any] = [column == value for column, value in equal.items() if value]
    if criteria.since is not None:
        conditions.append(audit_entry.c.recorded_at >= criteria.since)
    if criteria.until is not None:
        conditions.append(audit_entry.c.recorded_at < criteria.until)
    return conditions


def _record(row: Any) -> AuditRecord:
    return AuditRecord(
        id=row.id,
        recorded_at=row.recorded_at,
        action=row.action,
        object_kind=row.object_kind,
        object_id=row.object_id,
        actor=row.actor,
        payload=None if row.payload is None else msgspec.json.decode(row.payload),
        link=row.sequence,
    )

"""The sealer: puts committed entries into the chain, in the order of their commits.

The order is a number that a trigger draws while a transaction commits, under a lock that is held until the commit
is visible. So entries become visible exactly in this order, and an entry after the last link is never skipped.
"""

import structlog
from sqlalchemy import func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.audit.chain import ChainEntry, link_hash
from kapsa.fleet.infrastructure.postgres.advisory_locks import AdvisoryLock
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import audit_entry, audit_head, audit_seal

__all__ = ["GENESIS", "AuditSealer", "chain_columns"]

log = structlog.get_logger(__name__)

GENESIS = bytes(32)
"""The link before the first."""
_LOCK = select(func.pg_try_advisory_xact_lock(*AdvisoryLock.AUDIT_SEALER.key))
_BATCH = 1000

chain_columns = (
    audit_entry.c.id,
    audit_entry.c.commit_order,
    audit_entry.c.recorded_at,
    audit_entry.c.action,
    audit_entry.c.object_kind,
    audit_entry.c.object_id,
    audit_entry.c.content_hash,
)


class AuditSealer:
    """The sealer of one replica. Of all replicas, one seals at a time."""

    def __init__(self, database: Database, key: bytes) -> None:
        self._database = database
        self._key = key

    async def seal(self) -> int:
        """Seal all committed entries. Return how many, or 0 if another replica seals."""
        sealed = 0
        while count := await self._seal_batch():
            sealed += count
            if count < _BATCH:
                break
        return sealed

    async def _seal_batch(self) -> int:
        async with self._database.transaction() as connection:
            if not (await connection.execute(_LOCK)).scalar_one():
                return 0
            sequence, previous, order = await _head(connection)
            query = select(*chain_columns).where(audit_entry.c.commit_order > order)
            rows = (await connection.execute(query.order_by(audit_entry.c.commit_order).limit(_BATCH))).all()
            links = []
            for row in rows:
                sequence += 1
                previous = link_hash(self._key, sequence, previous, ChainEntry(*row))
                links.append((sequence, row.id, row.commit_order, previous))
            if links:
                columns = ("sequence", "entry_id", "commit_order", "chain_hash")
                values = [dict(zip(columns, link, strict=True)) for link in links]
                await connection.execute(insert(audit_seal), values)
                await _set_head(connection, sequence, previous)
                # A stored log is a witness outside the database.
                log.info("sealed audit entries", count=len(links), anchor=f"{sequence}:{previous.hex()}")
            return len(links)


async def _head(connection: AsyncConnection) -> tuple[int, bytes, int]:
    """Return the last link: its sequence, its hash and the commit order of its entry.

    Links that were removed from the end leave a gap: the chain continues after the last link that there ever was.
    """
    query = select(audit_seal.c.sequence, audit_seal.c.chain_hash, audit_seal.c.commit_order)
    last = (await connection.execute(query.order_by(audit_seal.c.sequence.desc()).limit(1))).first()
    sequence, chain_hash, order = (last[0], bytes(last[1]), last[2]) if last is not None else (0, GENESIS, 0)
    head = (await connection.execute(select(audit_head.c.sequence, audit_head.c.chain_hash))).first()
    if head is not None and head.sequence > sequence:
        log.error("links were removed from the end of the audit chain", last=sequence, recorded=head.sequence)
        sequence, chain_hash = head.sequence, bytes(head.chain_hash)
    return sequence, chain_hash, order


async def _set_head(connection: AsyncConnection, sequence: int, chain_hash: bytes) -> None:
    values = {"sequence": sequence, "chain_hash": chain_hash}
    statement = upsert(audit_head).values(id=1, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))

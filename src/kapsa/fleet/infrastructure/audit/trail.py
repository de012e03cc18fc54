"""The audit trail: entries are recorded in the transaction of the write."""

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.audit.chain import content_hash, encode_payload, entry_signature, new_salt
from kapsa.fleet.infrastructure.postgres.tables.foundation import audit_content, audit_entry
from kapsa.fleet.infrastructure.requests.idempotency import mark_current_claim
from kapsa.fleet.orchestrator.ports.audit import AuditEntry

__all__ = ["ERASE", "PostgresAuditTrail"]

ERASE = "audit.erase"
"""The action of an entry that records an erasure."""


class PostgresAuditTrail:
    """The trail of all replicas. The sealer puts its entries into a chain after their commit."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    async def record(self, connection: AsyncConnection, entry: AuditEntry) -> None:
        """Record an entry in the caller's transaction: it exists if, and only if, the write does.

        Every write passes here, so the Idempotency-Key of the request is marked as applied here, too.
        """
        await mark_current_claim(connection)
        salt, payload = new_salt(), encode_payload(entry.payload)
        hashed = content_hash(salt, entry.actor, payload)
        entry_row = {
            "action": entry.action,
            "object_kind": entry.object_kind,
            "object_id": entry.object_id,
            "content_hash": hashed,
            "signature": entry_signature(self._key, entry.action, entry.object_kind, entry.object_id, hashed),
        }
        inserted = await connection.execute(insert(audit_entry).values(entry_row).returning(audit_entry.c.id))
        content = {"entry_id": inserted.scalar_one(), "actor": entry.actor, "payload": payload, "salt": salt}
        await connection.execute(insert(audit_content).values(content))

    async def erase(self, connection: AsyncConnection, object_kind: str, object_id: str) -> int:
        """Erase actors and payloads of the entries of an object. Return the number of entries.

        The entries stay in the chain, which remains whole. An entry of its own records the erasure: the
        verification reports content that is missing without one.
        """
        erasure = AuditEntry(
            actor="system:erasure", action=ERASE, object_kind=object_kind, object_id=object_id
        )
        await self.record(connection, erasure)
        entries = select(audit_entry.c.id).where(
            audit_entry.c.object_kind == object_kind,
            audit_entry.c.object_id == object_id,
            audit_entry.c.action != ERASE,
        )
        return (
            await connection.execute(delete(audit_content).where(audit_content.c.entry_id.in_(entries)))
        ).rowcount

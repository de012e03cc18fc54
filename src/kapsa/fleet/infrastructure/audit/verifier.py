"""The verification of the audit chain: which row was changed, which is missing, which was inserted."""

import hmac
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.audit.chain import ChainEntry, content_hash, entry_signature, link_hash
from kapsa.fleet.infrastructure.audit.expiry import EXPIRE
from kapsa.fleet.infrastructure.audit.sealer import GENESIS, chain_columns
from kapsa.fleet.infrastructure.audit.trail import ERASE
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import (
    audit_content,
    audit_entry,
    audit_head,
    audit_seal,
)

__all__ = ["AuditFinding", "AuditReport", "verify_chain"]

_PAGE = 1000
_MOST_FINDINGS = 1000


class AuditFinding(msgspec.Struct, frozen=True):
    """One row that is not as it was sealed."""

    link: int
    """The position in the chain, or 0 if the row is not in it."""
    entry: int
    """The id of the entry, or 0 if it is unknown."""
    problem: str


class AuditReport(msgspec.Struct, frozen=True):
    """The result of a verification."""

    links: int
    unsealed: int
    """Entries that wait for the sealer. Never more than those of a few seconds."""
    erased: int
    """Entries whose content was erased, by retention or on request."""
    anchor: str
    """The last link, as `SEQUENCE:HASH`. Kept elsewhere, it proves later that nothing before it was changed."""
    findings: tuple[AuditFinding, ...]


class _Walk:
    """The state of one walk along the chain."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.previous = GENESIS
        self.sequence = 0
        self.commit_order = 0
        self.erased = 0
        self.findings: list[AuditFinding] = []

    def report(self, link: int, entry: int, problem: str) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(AuditFinding(link, entry, problem))

    def step(self, row: Any) -> None:
        """Check one link against its entry and against the link before it."""
        expected = self.sequence + 1
        if row.sequence != expected:
            first, last = expected, row.sequence - 1
            numbers = f"link {first}" if first == last else f"links {first} to {last}"
            self.report(first, 0, f"{numbers} of the chain: missing")
        elif row.id is None:
            self.report(row.sequence, row.entry_id, f"entry {row.entry_id}: missing")
        else:
            self._check_entry(row)
        self.sequence, self.previous = row.sequence, bytes(row.chain_hash)
        self.commit_order = row.sealed_order

    def _check_entry(self, row: Any) -> None:
        entry = ChainEntry(
            row.id,
            row.commit_order or 0,
            row.recorded_at,
            row.action,
            row.object_kind,
            row.object_id,
            bytes(row.content_hash),
        )
        computed = link_hash(self.key, row.sequence, self.previous, entry)
        if not hmac.compare_digest(computed, bytes(row.chain_hash)) or row.sealed_order != row.commit_order:
            self.report(row.sequence, row.id, f"entry {row.id}, or its link {row.sequence}: changed")
        elif not hmac.compare_digest(self._signature(entry), bytes(row.signature)):
            self.report(row.sequence, row.id, f"entry {row.id}: inserted, no manager has recorded it")
        if row.salt is None:
            self.erased += 1
        elif content_hash(bytes(row.salt), row.actor, row.payload) != bytes(row.content_hash):
            self.report(row.sequence, row.id, f"actor or payload of entry {row.id}: changed")

    def _signature(self, entry: ChainEntry) -> bytes:
        return entry_signature(self.key, entry.action, entry.object_kind, entry.object_id, entry.content_hash)


async def verify_chain(database: Database, key: bytes, *, anchor: str = "") -> AuditReport:
    """Check every row of the audit trail. An anchor of an earlier report must be a link of the chain.

    A hundred clusters leave half a million entries a day: no limit of a statement applies.
    """
    walk = _Walk(key)
    async with database.unlimited_transaction(snapshot=True) as connection:
        async for row in _links(connection):
            walk.step(row)
        await _check_head(connection, walk)
        await _check_anchor(connection, walk, anchor)
        await _check_inserted(connection, walk)
        await _check_erased(connection, walk)
        unsealed = await connection.execute(
            text("SELECT count(*) FROM fleet.audit_entry WHERE commit_order > :order"),
            {"order": walk.commit_order},
        )
        return AuditReport(
            links=walk.sequence,
            unsealed=unsealed.scalar_one(),
            erased=walk.erased,
            anchor=f"{walk.sequence}:{walk.previous.hex()}",
            findings=tuple(walk.findings),
        )


async def _links(connection: AsyncConnection) -> AsyncIterator[Any]:
    """Return each link with its entry and its content, where they exist."""
    joined = audit_seal.outerjoin(audit_entry, audit_entry.c.id == audit_seal.c.entry_id).outerjoin(
        audit_content, audit_content.c.entry_id == audit_seal.c.entry_id
    )
    query = (
        select(
            audit_seal.c.sequence,
            audit_seal.c.entry_id,
            audit_seal.c.commit_order.label("sealed_order"),
            audit_seal.c.chain_hash,
            *chain_columns,
            audit_entry.c.signature,
            audit_content.c.actor,
            audit_content.c.payload,
            audit_content.c.salt,
        )
        .select_from(joined)
        .order_by(audit_seal.c.sequence)
        .limit(_PAGE)
    )
    position = 0
    while rows := (await connection.execute(query.where(audit_seal.c.sequence > position))).all():
        for row in rows:
            yield row
        position = rows[-1].sequence


async def _check_head(connection: AsyncConnection, walk: _Walk) -> None:
    head = (await connection.execute(select(audit_head.c.sequence, audit_head.c.chain_hash))).first()
    if head is None:
        if walk.sequence:
            walk.report(walk.sequence, 0, "the record of the last link: missing")
    elif head.sequence > walk.sequence:
        first, last = walk.sequence + 1, head.sequence
        walk.report(first, 0, f"links {first} to {last} at the end of the chain: missing")
    elif (head.sequence, bytes(head.chain_hash)) != (walk.sequence, walk.previous):
        walk.report(walk.sequence, 0, f"links after {head.sequence}, or the record of the last link: changed")


async def _check_anchor(connection: AsyncConnection, walk: _Walk, anchor: str) -> None:
    if not anchor:
        return
    number, _, digest = anchor.partition(":")
    sequence = int(number) if number.isascii() and number.isdigit() else 0
    query = select(audit_seal.c.chain_hash).where(audit_seal.c.sequence == sequence)
    stored = (await connection.execute(query)).scalar_one_or_none() if sequence < 2**63 else None
    if stored is None or bytes(stored).hex() != digest.lower():
        walk.report(sequence, 0, f"anchor {anchor}: not a link of this chain")


async def _check_inserted(connection: AsyncConnection, walk: _Walk) -> None:
    """Report entries that are not in the chain although a later commit is, or that never committed with a number."""
    sealed = select(audit_seal.c.entry_id).where(audit_seal.c.entry_id == audit_entry.c.id).exists()
    outside = or_(audit_entry.c.commit_order <= walk.commit_order, audit_entry.c.commit_order.is_(None))
    query = select(audit_entry.c.id).where(outside, ~sealed).order_by(audit_entry.c.id).limit(_MOST_FINDINGS)
    for entry_id in (await connection.execute(query)).scalars():
        walk.report(0, entry_id, f"entry {entry_id}: inserted after its place in the chain was sealed")
    copied = select(func.max(audit_entry.c.id)).group_by(audit_entry.c.signature).having(func.count() > 1)
    for entry_id in (await connection.execute(copied.limit(_MOST_FINDINGS))).scalars():
        walk.report(0, entry_id, f"entry {entry_id}: inserted, it is the copy of another one")


async def _check_erased(connection: AsyncConnection, walk: _Walk) -> None:
    """Report content that is missing although neither an erasure nor an expiry of it was recorded."""
    expired = await _last_expiry(connection)
    erasure = audit_entry.alias()
    erased = (
        select(erasure.c.id)
        .where(
            erasure.c.action == ERASE,
            erasure.c.object_kind == audit_entry.c.object_kind,
            erasure.c.object_id == audit_entry.c.object_id,
            erasure.c.id > audit_entry.c.id,
        )
        .exists()
    )
    content = select(audit_content.c.entry_id).where(audit_content.c.entry_id == audit_entry.c.id).exists()
    query = select(audit_entry.c.id).where(~content, ~erased, audit_entry.c.recorded_at >= expired)
    query = query.order_by(audit_entry.c.id)
    for entry_id in (await connection.execute(query.limit(_MOST_FINDINGS))).scalars():
        walk.report(
            0, entry_id, f"actor and payload of entry {entry_id}: missing, and no erasure was recorded"
        )


async def _last_expiry(connection: AsyncConnection) -> datetime:
    """Return the time before which content has expired."""
    query = select(func.max(audit_entry.c.object_id)).where(
        audit_entry.c.action == EXPIRE, audit_entry.c.object_kind == "audit"
    )
    recorded = (await connection.execute(query)).scalar_one()
    try:
        return datetime.fromisoformat(recorded or "")
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)

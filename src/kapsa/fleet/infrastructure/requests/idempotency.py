"""Idempotency keys in PostgreSQL.

A claim has a token. The transaction of the write marks the key as applied, and only for its own token: a request
that outlived its claim cannot take effect after another request took the key over.
"""

import uuid
from datetime import timedelta
from math import ceil
from typing import Any

from sqlalchemy import Row, case, delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import idempotency_key as table
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.orchestrator.ports.requests.idempotency import (
    ClaimState,
    KeyClaim,
    RecordedResponse,
    current_claim,
)

__all__ = ["PostgresIdempotencyKeys", "mark_current_claim"]

_CLAIM = timedelta(seconds=60)
_REMEMBERED = timedelta(days=1)


class PostgresIdempotencyKeys:
    """The keys of all callers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, subject: str, key: str, fingerprint: bytes) -> KeyClaim:
        """Claim a key of a caller. The fingerprint is a hash of method, path and body."""
        token = uuid.uuid4()
        fresh = {
            "fingerprint": fingerprint,
            "created_at": NOW,
            "claimed_until": NOW + _CLAIM,
            "claim": token,
            "applied_at": None,
            "status": None,
            "headers": None,
            "body": None,
        }
        abandoned = (
            table.c.status.is_(None)
            & table.c.applied_at.is_(None)
            & (table.c.claimed_until <= NOW)
            & (table.c.fingerprint == fingerprint)
        )
        statement = (
            insert(table)
            .values(subject=subject, key=key, **fresh)
            .on_conflict_do_update(
                index_elements=["subject", "key"],
                set_=fresh,
                where=or_(table.c.created_at <= NOW - _REMEMBERED, abandoned),
            )
            .returning(table.c.claim)
        )
        async with self._database.transaction() as connection:
            if (await connection.execute(statement)).first() is not None:
                return KeyClaim(ClaimState.FRESH, subject, key, token=token)
            row = (await connection.execute(_stored(subject, key))).one()
        return _answer(subject, key, fingerprint, row)

    async def finish(self, claim: KeyClaim, response: RecordedResponse) -> None:
        """Record the response, for repetitions within a day."""
        values = {"status": response.status, "headers": dict(response.headers), "body": response.body}
        async with self._database.transaction() as connection:
            await connection.execute(update(table).where(_is_claim(claim)).values(values))

    async def release(self, claim: KeyClaim) -> None:
        """Give the key back after a request that had no effect, so that it can be sent again at once."""
        async with self._database.transaction() as connection:
            await connection.execute(delete(table).where(_is_claim(claim), table.c.applied_at.is_(None)))


async def mark_current_claim(connection: AsyncConnection) -> None:
    """Mark the key of the request that is being handled as applied, in the transaction of its write.

    Raises StateConflict if the claim has lapsed and another request has the key.
    """
    claim = current_claim.get()
    if claim is None:
        return
    applied = case((table.c.applied_at.is_(None), NOW), else_=table.c.applied_at)
    marked = await connection.execute(update(table).where(_is_claim(claim)).values(applied_at=applied))
    if marked.rowcount == 0:
        raise StateConflict(
            "the request took too long, and another request with the same Idempotency-Key is running"
        )


def _is_claim(claim: KeyClaim) -> Any:
    return (tuple_(table.c.subject, table.c.key) == (claim.subject, claim.key)) & (
        table.c.claim == claim.token
    )


def _stored(subject: str, key: str) -> Any:
    remaining = func.extract("epoch", table.c.claimed_until - NOW).label("remaining")
    columns = (table.c.fingerprint, table.c.applied_at, table.c.status, table.c.headers, table.c.body)
    return select(*columns, remaining).where(table.c.subject == subject, table.c.key == key)


def _answer(subject: str, key: str, fingerprint: bytes, row: Row[Any]) -> KeyClaim:
    if bytes(row.fingerprint) != fingerprint:
        return KeyClaim(ClaimState.MISMATCH, subject, key)
    if row.status is not None:
        response = RecordedResponse(row.status, row.headers, bytes(row.body))
        return KeyClaim(ClaimState.REPLAY, subject, key, response=response)
    if row.remaining > 0:
        return KeyClaim(ClaimState.IN_PROGRESS, subject, key, retry_after=max(1, ceil(row.remaining)))
    return KeyClaim(ClaimState.LOST, subject, key)

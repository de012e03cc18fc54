"""The chain of audit entries: what is hashed, and with which key.

A link is a keyed hash over the entry and the link before it, and an entry is signed by the manager that records it.
The key is sealed in the vault: write access to the database is enough neither to forge a chain nor to have a forged
entry sealed. Of actor and payload only a salted hash is in the chain, so they can be erased, and cannot be guessed
from what remains.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import internal_secret
from kapsa.fleet.orchestrator.ports.vault import KeyVault

__all__ = [
    "ChainEntry",
    "chain_key",
    "content_hash",
    "encode_payload",
    "entry_signature",
    "link_hash",
    "new_salt",
]

_NAME = "audit-chain"
_BOUND = ("audit-chain", "internal_secret", _NAME, 1)


class ChainEntry(msgspec.Struct, frozen=True):
    """The part of an entry that is in the chain for good."""

    id: int
    commit_order: int
    recorded_at: datetime
    action: str
    object_kind: str
    object_id: str
    content_hash: bytes


def encode_payload(payload: Mapping[str, Any]) -> str:
    """Return a payload as the exact text that is stored and hashed."""
    return msgspec.json.encode(payload, order="sorted").decode()


def new_salt() -> bytes:
    """Return a salt for one entry."""
    return secrets.token_bytes(16)


def content_hash(salt: bytes, actor: str, payload: str) -> bytes:
    """Return the hash of actor and payload."""
    return hashlib.sha256(salt + msgspec.json.encode([actor, payload])).digest()


def entry_signature(key: bytes, action: str, object_kind: str, object_id: str, content: bytes) -> bytes:
    """Return the signature of an entry with this hash of its content, which the salt makes unique."""
    return hmac.digest(
        key, msgspec.json.encode(["entry", action, object_kind, object_id, content.hex()]), "sha256"
    )


def link_hash(key: bytes, sequence: int, previous: bytes, entry: ChainEntry) -> bytes:
    """Return the hash of a link."""
    moment = entry.recorded_at.astimezone(UTC).isoformat(timespec="microseconds")
    parts = [
        sequence,
        previous.hex(),
        entry.id,
        entry.commit_order,
        moment,
        entry.action,
        entry.object_kind,
        entry.object_id,
        entry.content_hash.hex(),
    ]
    return hmac.digest(key, msgspec.json.encode(parts), "sha256")


async def chain_key(database: Database, vault: KeyVault) -> bytes:
    """Return the key of the chain of this database, which the first manager makes."""
    query = select(internal_secret.c.value).where(internal_secret.c.name == _NAME)
    async with database.transaction() as connection:
        sealed = (await connection.execute(query)).scalar_one_or_none()
    if sealed is None:
        fresh = await vault.seal(*_BOUND, secrets.token_bytes(32))
        create = insert(internal_secret).values(name=_NAME, value=fresh).on_conflict_do_nothing()
        async with database.transaction() as connection:
            await connection.execute(create)
            sealed = (await connection.execute(query)).scalar_one()
    return await vault.open(sealed, *_BOUND)

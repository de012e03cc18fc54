"""Tables that every area uses: audit, outbox, idempotency keys, rate limits, keys of the vault."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from kapsa.fleet.infrastructure.postgres.tables.metadata import MOMENT, metadata, moment_of_insert
from kapsa.fleet.infrastructure.postgres.tables.sealed_column import SealedColumn

__all__ = [
    "audit_content",
    "audit_entry",
    "audit_head",
    "audit_seal",
    "browser_session",
    "idempotency_key",
    "internal_secret",
    "outbox",
    "rate_limit",
    "vault_key",
]


audit_entry = Table(
    "audit_entry",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    moment_of_insert("recorded_at"),
    Column("action", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("content_hash", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("commit_order", BigInteger, unique=True),
    Index(None, "object_kind", "object_id", "id"),
    Index(None, "recorded_at", "id"),
    comment="One row for each act. A trigger sets commit_order while the transaction commits.",
)

audit_content = Table(
    "audit_content",
    metadata,
    Column("entry_id", BigInteger, ForeignKey(audit_entry.c.id, ondelete="CASCADE"), primary_key=True),
    Column("actor", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Index(None, "actor", "entry_id"),
    comment="What an entry says about people and clusters. The chain has its salted hash, so it can be erased.",
)

audit_seal = Table(
    "audit_seal",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("entry_id", BigInteger, nullable=False, unique=True),
    Column("commit_order", BigInteger, nullable=False, unique=True),
    Column("chain_hash", LargeBinary, nullable=False),
    comment="The chain, in commit order. No foreign key: a deleted entry must be found missing.",
)

audit_head = Table(
    "audit_head",
    metadata,
    Column(
        "id", Integer, CheckConstraint("id = 1", name="single_row"), primary_key=True, autoincrement=False
    ),
    Column("sequence", BigInteger, nullable=False),
    Column("chain_hash", LargeBinary, nullable=False),
    comment="The last link of the chain, so that removed last rows are found missing.",
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("kind", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    moment_of_insert("created_at"),
    moment_of_insert("due_at"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text, nullable=False, server_default=text("''")),
    Column("delivered_at", MOMENT),
    Column("abandoned_at", MOMENT),
    Index("outbox_pending", "due_at", postgresql_where=text("delivered_at IS NULL AND abandoned_at IS NULL")),
    Index(None, "created_at"),
)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    moment_of_insert("created_at"),
    Column("claimed_until", MOMENT, nullable=False),
    Column("claim", Uuid, nullable=False),
    Column("applied_at", MOMENT),
    Column("status", Integer),
    Column("headers", JSONB),
    Column("body", LargeBinary),
    Index(None, "created_at"),
)

rate_limit = Table(
    "rate_limit",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("hits", ARRAY(MOMENT), nullable=False),
    Column("expires_at", MOMENT, nullable=False),
    Index(None, "expires_at"),
    prefixes=["UNLOGGED"],
)

browser_session = Table(
    "browser_session",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    Column("principal", JSONB, nullable=False),
    moment_of_insert("created_at"),
    Column("expires_at", MOMENT, nullable=False),
    Index(None, "expires_at"),
    comment="Sessions of browsers. The cookie is stored as a hash: a dump of the database signs nobody in.",
)

vault_key = Table(
    "vault_key",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("canary", SealedColumn, nullable=False),
    moment_of_insert("created_at"),
    comment="Each key that ever sealed something here, with a value that proves that the loaded key is the same.",
)

internal_secret = Table(
    "internal_secret",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", SealedColumn, nullable=False),
    moment_of_insert("created_at"),
)

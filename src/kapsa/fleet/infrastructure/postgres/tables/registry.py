"""Tables of registered operators and clusters: charts, versions, credentials, health, inventory."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from kapsa.fleet.infrastructure.postgres.tables.metadata import MOMENT, metadata, moment_of_insert
from kapsa.fleet.infrastructure.postgres.tables.sealed_column import SealedColumn

__all__ = [
    "chart_archive",
    "cluster",
    "cluster_credential",
    "cluster_inventory",
    "cluster_operator",
    "operator",
    "operator_secret",
    "operator_version",
    "operator_version_crd",
]


operator = Table(
    "operator",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("namespace", Text, nullable=False),
    Column("source", JSONB, nullable=False),
    Column("values", JSONB, nullable=False),
    Column("environment_values", JSONB, nullable=False),
    Column("cluster_values", JSONB, nullable=False, server_default=text("'{}'")),
    Column("secret_paths", JSONB, nullable=False),
    Column("has_credentials", Boolean, nullable=False),
    Column("paused_reason", Text, nullable=False, server_default=text("''")),
    moment_of_insert("created_at"),
    Column("created_by", Text, nullable=False),
    Column("version", Integer, nullable=False),
)

operator_secret = Table(
    "operator_secret",
    metadata,
    Column("operator_id", Uuid, ForeignKey(operator.c.id, ondelete="CASCADE"), primary_key=True),
    Column("purpose", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("sealed", SealedColumn, nullable=False),
)

chart_archive = Table(
    "chart_archive",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    moment_of_insert("created_at"),
    comment="Archives of charts by their digest: what was approved is what is deployed.",
)

operator_version = Table(
    "operator_version",
    metadata,
    Column("operator_id", Uuid, ForeignKey(operator.c.id, ondelete="CASCADE"), primary_key=True),
    Column("version", Text, primary_key=True),
    Column("version_order", Text(collation="C"), nullable=False),
    Column("chart_digest", Text, ForeignKey(chart_archive.c.digest), nullable=False),
    Column("facts", JSONB, nullable=False),
    moment_of_insert("created_at"),
    Column("created_by", Text, nullable=False),
    Column("withdrawn_reason", Text, nullable=False, server_default=text("''")),
    Column("migration_guide", Text, nullable=False, server_default=text("''")),
    Index(None, "operator_id", "version_order"),
    Index(None, "chart_digest"),
)

operator_version_crd = Table(
    "operator_version_crd",
    metadata,
    Column("operator_id", Uuid, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    Column("location", Text, nullable=False),
    Column("definition", JSONB, nullable=False),
    ForeignKeyConstraint(
        ["operator_id", "version"],
        [operator_version.c.operator_id, operator_version.c.version],
        ondelete="CASCADE",
    ),
    Index(None, "name"),
)

cluster = Table(
    "cluster",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("environment", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("server", Text, nullable=False),
    Column("cluster_uid", Text, unique=True),
    Column("health", JSONB, nullable=False),
    Column("windows", JSONB, nullable=False),
    Column("freezes", JSONB, nullable=False),
    moment_of_insert("created_at"),
    Column("created_by", Text, nullable=False),
    Column("version", Integer, nullable=False),
    moment_of_insert("next_check_at"),
    Column("checks", BigInteger, nullable=False, server_default=text("0")),
    Index(None, "next_check_at"),
    Index(None, "environment", "name"),
    comment="Registered clusters. `checks` is the fence of health checks: a late one writes nothing.",
)

cluster_credential = Table(
    "cluster_credential",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("purpose", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("sealed", SealedColumn, nullable=False),
    Column("renew_at", MOMENT),
    Column("expires_at", MOMENT),
)

cluster_inventory = Table(
    "cluster_inventory",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("taken_at", MOMENT, nullable=False),
    Column("content", JSONB, nullable=False),
)

cluster_operator = Table(
    "cluster_operator",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("operator_id", Uuid, ForeignKey(operator.c.id), primary_key=True),
    Column("release", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("adopted_revision", Integer, nullable=False),
    Column("adopted_version", Text, nullable=False),
    moment_of_insert("adopted_at"),
    Column("adopted_by", Text, nullable=False),
    Column("values_version", Integer, nullable=False),
    Column("values", SealedColumn, nullable=False),
    Index(None, "operator_id"),
    comment="Releases that were there before the manager, and the values that they were installed with.",
)

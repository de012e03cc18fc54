"""Tables of the rollout engine: deployments, their clusters, plans, approvals, events, and what is installed where."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from kapsa.fleet.infrastructure.postgres.tables.metadata import MOMENT, metadata, moment_of_insert
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster, operator
from kapsa.fleet.infrastructure.postgres.tables.sealed_column import SealedColumn

__all__ = [
    "approval",
    "deployment",
    "deployment_bundle",
    "deployment_cluster",
    "deployment_event",
    "deployment_plan",
    "installation",
]

_ZERO = text("0")


def _claim_columns() -> tuple[Column[object], ...]:
    """Return the columns that a replica claims a row by."""
    return (
        Column("next_run_at", MOMENT),
        Column("lease_owner", Text, nullable=False, server_default=text("''")),
        Column("lease_until", MOMENT),
        Column("fence", BigInteger, nullable=False, server_default=_ZERO),
    )


deployment = Table(
    "deployment",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("operator_id", Uuid, ForeignKey(operator.c.id), nullable=False),
    Column("operator_name", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("secret_values", SealedColumn),
    Column("last_event", BigInteger, nullable=False, server_default=_ZERO),
    moment_of_insert("created_at"),
    *_claim_columns(),
    Index(None, "created_at", "id"),
    Index("deployment_due", "next_run_at", postgresql_where=text("next_run_at IS NOT NULL")),
    Index(None, "operator_id", "phase"),
    comment="Deployments. `document` is the whole; the other columns repeat what queries need.",
)

deployment_cluster = Table(
    "deployment_cluster",
    metadata,
    Column("deployment_id", Uuid, ForeignKey(deployment.c.id, ondelete="CASCADE"), primary_key=True),
    Column("cluster_id", Uuid, primary_key=True),
    Column("operator_id", Uuid, nullable=False),
    Column("cluster_name", Text(collation="C"), nullable=False),
    Column("goal", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("document", JSONB, nullable=False),
    *_claim_columns(),
    Index("deployment_cluster_due", "next_run_at", postgresql_where=text("next_run_at IS NOT NULL")),
    Index(
        "deployment_cluster_active",
        "cluster_id",
        "operator_id",
        unique=True,
        postgresql_where=text("active"),
    ),
    comment="The clusters of deployments. One active deployment for each operator on a cluster.",
)

deployment_plan = Table(
    "deployment_plan",
    metadata,
    Column("deployment_id", Uuid, ForeignKey(deployment.c.id, ondelete="CASCADE"), primary_key=True),
    Column("digest", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    moment_of_insert("created_at"),
)

deployment_bundle = Table(
    "deployment_bundle",
    metadata,
    Column("deployment_id", Uuid, ForeignKey(deployment.c.id, ondelete="CASCADE"), primary_key=True),
    Column("cluster_id", Uuid, primary_key=True),
    Column("sealed", SealedColumn, nullable=False),
    comment="The manifest and the values that a plan applies to a cluster.",
)

deployment_event = Table(
    "deployment_event",
    metadata,
    Column("deployment_id", Uuid, ForeignKey(deployment.c.id, ondelete="CASCADE"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    moment_of_insert("at"),
    Column("kind", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("message", Text, nullable=False),
)

approval = Table(
    "approval",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("deployment_id", Uuid, ForeignKey(deployment.c.id, ondelete="CASCADE"), nullable=False),
    Column("state", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    moment_of_insert("created_at"),
    Column("sequence", BigInteger, Identity(always=True), nullable=False),
    Index(None, "deployment_id"),
    Index(None, "created_at", "id"),
)

installation = Table(
    "installation",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("operator_id", Uuid, ForeignKey(operator.c.id), primary_key=True),
    Column("release_name", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("chart_digest", Text, nullable=False),
    Column("deployment_id", Uuid),
    moment_of_insert("updated_at"),
    Index(None, "operator_id"),
    comment="The release that runs an operator on a cluster, as the last deployment left it.",
)

"""Tables of health: the last reading of each release, baselines of upgrades, and the sweeps of clusters."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from kapsa.fleet.infrastructure.postgres.tables.metadata import MOMENT, metadata
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster, operator

__all__ = ["cluster_sweep", "health_baseline", "release_reading"]


release_reading = Table(
    "release_reading",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("release", Text, primary_key=True),
    Column("health", JSONB, nullable=False),
    Column("memory", JSONB, nullable=False),
    Column("checked_at", MOMENT, nullable=False),
    comment="The last reading of each release. `memory` is what the next one compares with.",
)

health_baseline = Table(
    "health_baseline",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("operator_id", Uuid, ForeignKey(operator.c.id, ondelete="CASCADE"), primary_key=True),
    Column("baseline", JSONB, nullable=False),
    comment="The resources that were not current before the last upgrade of an operator.",
)

cluster_sweep = Table(
    "cluster_sweep",
    metadata,
    Column("cluster_id", Uuid, ForeignKey(cluster.c.id, ondelete="CASCADE"), primary_key=True),
    Column("next_sweep_at", MOMENT, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Index(None, "next_sweep_at"),
    comment="The next sweep of each cluster. `fence` counts them.",
)

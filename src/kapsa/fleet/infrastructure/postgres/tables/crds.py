"""Tables of CRDs: who stored one by itself, and which changes were approved. The definitions are in the registry."""

from sqlalchemy import Column, ForeignKeyConstraint, Table, Text, Uuid

from kapsa.fleet.infrastructure.postgres.tables.metadata import MOMENT, metadata, moment_of_insert
from kapsa.fleet.infrastructure.postgres.tables.registry import operator_version_crd

__all__ = ["crd_approval", "crd_upload"]


def _of_a_revision() -> ForeignKeyConstraint:
    """Return the reference to a CRD of a version, with which the row is deleted."""
    table = operator_version_crd
    return ForeignKeyConstraint(
        ["operator_id", "version", "name"],
        [table.c.operator_id, table.c.version, table.c.name],
        ondelete="CASCADE",
    )


crd_upload = Table(
    "crd_upload",
    metadata,
    Column("operator_id", Uuid, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    moment_of_insert("created_at"),
    Column("created_by", Text, nullable=False),
    _of_a_revision(),
    comment="CRDs that were stored by themselves. Those of charts came with their version.",
)

crd_approval = Table(
    "crd_approval",
    metadata,
    Column("operator_id", Uuid, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("from_version", Text, nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("approved_at", MOMENT, nullable=False),
    Column("comment", Text, nullable=False),
    _of_a_revision(),
    comment="Agreements to changes of CRDs, each to exactly the findings with this digest.",
)

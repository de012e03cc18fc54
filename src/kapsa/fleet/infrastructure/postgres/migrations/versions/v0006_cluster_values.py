"""Values of operators for single clusters."""

from alembic import op

revision = "0006_cluster_values"
down_revision = "0005_health"


def upgrade() -> None:
    op.execute("ALTER TABLE fleet.operator ADD COLUMN cluster_values jsonb NOT NULL DEFAULT '{}'")

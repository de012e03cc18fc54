"""Health: the last reading of each release, baselines of upgrades, and the sweeps of clusters."""

from alembic import op

revision = "0005_health"
down_revision = "0004_crds"

HEALTH = """
CREATE TABLE fleet.release_reading (
  cluster_id uuid NOT NULL
    CONSTRAINT release_reading_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  namespace text NOT NULL,
  release text NOT NULL,
  health jsonb NOT NULL,
  memory jsonb NOT NULL,
  checked_at timestamptz NOT NULL,
  CONSTRAINT release_reading_pkey PRIMARY KEY (cluster_id, namespace, release)
) WITH (fillfactor = 70);
COMMENT ON TABLE fleet.release_reading IS
  'The last reading of each release. `memory` is what the next one compares with.';

CREATE TABLE fleet.health_baseline (
  cluster_id uuid NOT NULL
    CONSTRAINT health_baseline_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  operator_id uuid NOT NULL
    CONSTRAINT health_baseline_operator_id_fkey REFERENCES fleet.operator (id) ON DELETE CASCADE,
  baseline jsonb NOT NULL,
  CONSTRAINT health_baseline_pkey PRIMARY KEY (cluster_id, operator_id)
);
COMMENT ON TABLE fleet.health_baseline IS
  'The resources that were not current before the last upgrade of an operator.';

CREATE TABLE fleet.cluster_sweep (
  cluster_id uuid NOT NULL CONSTRAINT cluster_sweep_pkey PRIMARY KEY
    CONSTRAINT cluster_sweep_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  next_sweep_at timestamptz NOT NULL,
  fence bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX cluster_sweep_next_sweep_at ON fleet.cluster_sweep (next_sweep_at);
COMMENT ON TABLE fleet.cluster_sweep IS
  'The next sweep of each cluster. `fence` counts them.';
"""


def upgrade() -> None:
    op.execute(HEALTH)

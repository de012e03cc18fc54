"""Registry: operators with their charts and versions, clusters with their credentials, health and inventory."""

from alembic import op

revision = "0002_registry"
down_revision = "0001_foundation"

OPERATORS = """
CREATE TABLE fleet.operator (
  id uuid CONSTRAINT operator_pkey PRIMARY KEY,
  name text COLLATE "C" NOT NULL CONSTRAINT operator_name_key UNIQUE,
  namespace text NOT NULL,
  source jsonb NOT NULL,
  "values" jsonb NOT NULL,
  environment_values jsonb NOT NULL,
  secret_paths jsonb NOT NULL,
  has_credentials boolean NOT NULL,
  paused_reason text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  created_by text NOT NULL,
  version integer NOT NULL
);

CREATE TABLE fleet.operator_secret (
  operator_id uuid CONSTRAINT operator_secret_operator_id_fkey REFERENCES fleet.operator (id) ON DELETE CASCADE,
  purpose text NOT NULL,
  version integer NOT NULL,
  sealed bytea NOT NULL,
  CONSTRAINT operator_secret_pkey PRIMARY KEY (operator_id, purpose)
);

CREATE TABLE fleet.chart_archive (
  digest text CONSTRAINT chart_archive_pkey PRIMARY KEY,
  content bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now()
);
-- Archives are compressed already.
ALTER TABLE fleet.chart_archive ALTER COLUMN content SET STORAGE EXTERNAL;
COMMENT ON TABLE fleet.chart_archive IS
  'Archives of charts by their digest: what was approved is what is deployed.';

CREATE TABLE fleet.operator_version (
  operator_id uuid CONSTRAINT operator_version_operator_id_fkey REFERENCES fleet.operator (id) ON DELETE CASCADE,
  version text NOT NULL,
  version_order text COLLATE "C" NOT NULL,
  chart_digest text NOT NULL
    CONSTRAINT operator_version_chart_digest_fkey REFERENCES fleet.chart_archive (digest),
  facts jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  created_by text NOT NULL,
  withdrawn_reason text NOT NULL DEFAULT '',
  migration_guide text NOT NULL DEFAULT '',
  CONSTRAINT operator_version_pkey PRIMARY KEY (operator_id, version)
);
CREATE INDEX operator_version_operator_id_version_order
  ON fleet.operator_version (operator_id, version_order);
CREATE INDEX operator_version_chart_digest ON fleet.operator_version (chart_digest);

CREATE TABLE fleet.operator_version_crd (
  operator_id uuid NOT NULL,
  version text NOT NULL,
  name text COLLATE "C" NOT NULL,
  location text NOT NULL,
  definition jsonb NOT NULL,
  CONSTRAINT operator_version_crd_pkey PRIMARY KEY (operator_id, version, name),
  CONSTRAINT operator_version_crd_operator_id_version_fkey FOREIGN KEY (operator_id, version)
    REFERENCES fleet.operator_version (operator_id, version) ON DELETE CASCADE
);
CREATE INDEX operator_version_crd_name ON fleet.operator_version_crd (name);
"""

CLUSTERS = """
CREATE TABLE fleet.cluster (
  id uuid CONSTRAINT cluster_pkey PRIMARY KEY,
  name text COLLATE "C" NOT NULL CONSTRAINT cluster_name_key UNIQUE,
  environment text NOT NULL,
  labels jsonb NOT NULL,
  server text NOT NULL,
  cluster_uid text CONSTRAINT cluster_cluster_uid_key UNIQUE,
  health jsonb NOT NULL,
  windows jsonb NOT NULL,
  freezes jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  created_by text NOT NULL,
  version integer NOT NULL,
  next_check_at timestamptz NOT NULL DEFAULT fleet.now(),
  checks bigint NOT NULL DEFAULT 0
);
CREATE INDEX cluster_next_check_at ON fleet.cluster (next_check_at);
CREATE INDEX cluster_environment_name ON fleet.cluster (environment, name);
COMMENT ON TABLE fleet.cluster IS
  'Registered clusters. `checks` is the fence of health checks: a late one writes nothing.';

CREATE TABLE fleet.cluster_credential (
  cluster_id uuid CONSTRAINT cluster_credential_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  purpose text NOT NULL,
  version integer NOT NULL,
  sealed bytea NOT NULL,
  renew_at timestamptz,
  expires_at timestamptz,
  CONSTRAINT cluster_credential_pkey PRIMARY KEY (cluster_id, purpose)
);

CREATE TABLE fleet.cluster_inventory (
  cluster_id uuid CONSTRAINT cluster_inventory_pkey PRIMARY KEY
    CONSTRAINT cluster_inventory_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  taken_at timestamptz NOT NULL,
  content jsonb NOT NULL
);

CREATE TABLE fleet.cluster_operator (
  cluster_id uuid CONSTRAINT cluster_operator_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  operator_id uuid CONSTRAINT cluster_operator_operator_id_fkey REFERENCES fleet.operator (id),
  release text NOT NULL,
  namespace text NOT NULL,
  adopted_revision integer NOT NULL,
  adopted_version text NOT NULL,
  adopted_at timestamptz NOT NULL DEFAULT fleet.now(),
  adopted_by text NOT NULL,
  values_version integer NOT NULL,
  "values" bytea NOT NULL,
  CONSTRAINT cluster_operator_pkey PRIMARY KEY (cluster_id, operator_id)
);
CREATE INDEX cluster_operator_operator_id ON fleet.cluster_operator (operator_id);
COMMENT ON TABLE fleet.cluster_operator IS
  'Releases that were there before the manager, and the values that they were installed with.';
"""


def upgrade() -> None:
    for statements in (OPERATORS, CLUSTERS):
        op.execute(statements)

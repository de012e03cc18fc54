"""Rollouts: deployments, their clusters, plans, approvals, events, and what is installed where."""

from alembic import op

revision = "0003_rollouts"
down_revision = "0002_registry"

DEPLOYMENTS = """
CREATE TABLE fleet.deployment (
  id uuid CONSTRAINT deployment_pkey PRIMARY KEY,
  operator_id uuid NOT NULL CONSTRAINT deployment_operator_id_fkey REFERENCES fleet.operator (id),
  operator_name text NOT NULL,
  phase text NOT NULL,
  document jsonb NOT NULL,
  secret_values bytea,
  last_event bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  next_run_at timestamptz,
  lease_owner text NOT NULL DEFAULT '',
  lease_until timestamptz,
  fence bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX deployment_created_at_id ON fleet.deployment (created_at, id);
CREATE INDEX deployment_due ON fleet.deployment (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE INDEX deployment_operator_id_phase ON fleet.deployment (operator_id, phase);
COMMENT ON TABLE fleet.deployment IS
  'Deployments. `document` is the whole; the other columns repeat what queries need.';

CREATE TABLE fleet.deployment_cluster (
  deployment_id uuid NOT NULL
    CONSTRAINT deployment_cluster_deployment_id_fkey REFERENCES fleet.deployment (id) ON DELETE CASCADE,
  cluster_id uuid NOT NULL,
  operator_id uuid NOT NULL,
  cluster_name text COLLATE "C" NOT NULL,
  goal text NOT NULL,
  state text NOT NULL,
  active boolean NOT NULL,
  document jsonb NOT NULL,
  next_run_at timestamptz,
  lease_owner text NOT NULL DEFAULT '',
  lease_until timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  CONSTRAINT deployment_cluster_pkey PRIMARY KEY (deployment_id, cluster_id)
) WITH (fillfactor = 80);
CREATE INDEX deployment_cluster_due ON fleet.deployment_cluster (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE UNIQUE INDEX deployment_cluster_active ON fleet.deployment_cluster (cluster_id, operator_id) WHERE active;
COMMENT ON TABLE fleet.deployment_cluster IS
  'The clusters of deployments. One active deployment for each operator on a cluster.';
"""

PLANS = """
CREATE TABLE fleet.deployment_plan (
  deployment_id uuid CONSTRAINT deployment_plan_pkey PRIMARY KEY
    CONSTRAINT deployment_plan_deployment_id_fkey REFERENCES fleet.deployment (id) ON DELETE CASCADE,
  digest text NOT NULL,
  document jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now()
);

CREATE TABLE fleet.deployment_bundle (
  deployment_id uuid NOT NULL
    CONSTRAINT deployment_bundle_deployment_id_fkey REFERENCES fleet.deployment (id) ON DELETE CASCADE,
  cluster_id uuid NOT NULL,
  sealed bytea NOT NULL,
  CONSTRAINT deployment_bundle_pkey PRIMARY KEY (deployment_id, cluster_id)
);
COMMENT ON TABLE fleet.deployment_bundle IS
  'The manifest and the values that a plan applies to a cluster.';
"""

HISTORY = """
CREATE TABLE fleet.deployment_event (
  deployment_id uuid NOT NULL
    CONSTRAINT deployment_event_deployment_id_fkey REFERENCES fleet.deployment (id) ON DELETE CASCADE,
  sequence bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT fleet.now(),
  kind text NOT NULL,
  cluster text NOT NULL,
  actor text NOT NULL,
  message text NOT NULL,
  CONSTRAINT deployment_event_pkey PRIMARY KEY (deployment_id, sequence)
);

CREATE TABLE fleet.approval (
  id uuid CONSTRAINT approval_pkey PRIMARY KEY,
  deployment_id uuid NOT NULL
    CONSTRAINT approval_deployment_id_fkey REFERENCES fleet.deployment (id) ON DELETE CASCADE,
  state text NOT NULL,
  document jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  sequence bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX approval_deployment_id ON fleet.approval (deployment_id);
CREATE INDEX approval_created_at_id ON fleet.approval (created_at, id);
"""

INSTALLATIONS = """
CREATE TABLE fleet.installation (
  cluster_id uuid NOT NULL CONSTRAINT installation_cluster_id_fkey REFERENCES fleet.cluster (id) ON DELETE CASCADE,
  operator_id uuid NOT NULL CONSTRAINT installation_operator_id_fkey REFERENCES fleet.operator (id),
  release_name text NOT NULL,
  namespace text NOT NULL,
  revision integer NOT NULL,
  version text NOT NULL,
  chart_digest text NOT NULL,
  deployment_id uuid,
  updated_at timestamptz NOT NULL DEFAULT fleet.now(),
  CONSTRAINT installation_pkey PRIMARY KEY (cluster_id, operator_id)
);
CREATE INDEX installation_operator_id ON fleet.installation (operator_id);
COMMENT ON TABLE fleet.installation IS
  'The release that runs an operator on a cluster, as the last deployment left it.';
"""


def upgrade() -> None:
    for statements in (DEPLOYMENTS, PLANS, HISTORY, INSTALLATIONS):
        op.execute(statements)

"""CRDs: who stored one by itself, and which changes were approved."""

from alembic import op

revision = "0004_crds"
down_revision = "0003_rollouts"

CRDS = """
CREATE TABLE fleet.crd_upload (
  operator_id uuid NOT NULL,
  version text NOT NULL,
  name text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  created_by text NOT NULL,
  CONSTRAINT crd_upload_pkey PRIMARY KEY (operator_id, version, name),
  CONSTRAINT crd_upload_operator_id_version_name_fkey FOREIGN KEY (operator_id, version, name)
    REFERENCES fleet.operator_version_crd (operator_id, version, name) ON DELETE CASCADE
);
COMMENT ON TABLE fleet.crd_upload IS
  'CRDs that were stored by themselves. Those of charts came with their version.';

CREATE TABLE fleet.crd_approval (
  operator_id uuid NOT NULL,
  version text NOT NULL,
  name text COLLATE "C" NOT NULL,
  digest text NOT NULL,
  from_version text NOT NULL,
  approved_by text NOT NULL,
  approved_at timestamptz NOT NULL,
  comment text NOT NULL,
  CONSTRAINT crd_approval_pkey PRIMARY KEY (operator_id, version, name, digest),
  CONSTRAINT crd_approval_operator_id_version_name_fkey FOREIGN KEY (operator_id, version, name)
    REFERENCES fleet.operator_version_crd (operator_id, version, name) ON DELETE CASCADE
);
COMMENT ON TABLE fleet.crd_approval IS
  'Agreements to changes of CRDs, each to exactly the findings with this digest.';
"""


def upgrade() -> None:
    op.execute(CRDS)

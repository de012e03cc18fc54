"""Foundation: the clock, the audit trail, the outbox, idempotency keys, rate limits, keys of the vault."""

from alembic import op

revision = "0001_foundation"
down_revision = None

CLOCK = """
CREATE FUNCTION fleet.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT coalesce(nullif(current_setting('fleet.now', true), '')::timestamptz, statement_timestamp())
$$;
COMMENT ON FUNCTION fleet.now() IS
  'The time of the manager. A test sets it by the setting fleet.now. Stable, so that an index can be used.';
"""

AUDIT = """
CREATE TABLE fleet.audit_entry (
  id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT audit_entry_pkey PRIMARY KEY,
  recorded_at timestamptz NOT NULL DEFAULT fleet.now(),
  action text NOT NULL,
  object_kind text NOT NULL,
  object_id text NOT NULL,
  content_hash bytea NOT NULL,
  signature bytea NOT NULL,
  commit_order bigint CONSTRAINT audit_entry_commit_order_key UNIQUE
) WITH (fillfactor = 85);
CREATE INDEX audit_entry_object_kind_object_id_id ON fleet.audit_entry (object_kind, object_id, id);
CREATE INDEX audit_entry_recorded_at_id ON fleet.audit_entry (recorded_at, id);
COMMENT ON TABLE fleet.audit_entry IS
  'One row for each act. A trigger sets commit_order while the transaction commits.';

CREATE TABLE fleet.audit_content (
  entry_id bigint CONSTRAINT audit_content_pkey PRIMARY KEY
    CONSTRAINT audit_content_entry_id_fkey REFERENCES fleet.audit_entry (id) ON DELETE CASCADE,
  actor text NOT NULL,
  payload text NOT NULL,
  salt bytea NOT NULL
);
CREATE INDEX audit_content_actor_entry_id ON fleet.audit_content (actor, entry_id);
COMMENT ON TABLE fleet.audit_content IS
  'What an entry says about people and clusters. The chain has its salted hash, so it can be erased.';

CREATE TABLE fleet.audit_seal (
  sequence bigint CONSTRAINT audit_seal_pkey PRIMARY KEY,
  entry_id bigint NOT NULL CONSTRAINT audit_seal_entry_id_key UNIQUE,
  commit_order bigint NOT NULL CONSTRAINT audit_seal_commit_order_key UNIQUE,
  chain_hash bytea NOT NULL
);
COMMENT ON TABLE fleet.audit_seal IS
  'The chain, in commit order. No foreign key: a deleted entry must be found missing.';

CREATE TABLE fleet.audit_head (
  id integer CONSTRAINT audit_head_pkey PRIMARY KEY
    CONSTRAINT audit_head_single_row CHECK (id = 1),
  sequence bigint NOT NULL,
  chain_hash bytea NOT NULL
);
COMMENT ON TABLE fleet.audit_head IS
  'The last link of the chain, so that removed last rows are found missing.';

CREATE SEQUENCE fleet.audit_commit_order;
CREATE FUNCTION fleet.order_audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Held until the commit is visible: no other transaction with an entry commits between the number and the commit.
  PERFORM pg_advisory_xact_lock(1801548659, 1);
  UPDATE fleet.audit_entry SET commit_order = nextval('fleet.audit_commit_order') WHERE id = NEW.id;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER order_audit_entry AFTER INSERT ON fleet.audit_entry
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fleet.order_audit_entry();
"""

DELIVERY = """
CREATE TABLE fleet.outbox (
  id uuid DEFAULT gen_random_uuid() CONSTRAINT outbox_pkey PRIMARY KEY,
  kind text NOT NULL,
  payload jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  due_at timestamptz NOT NULL DEFAULT fleet.now(),
  attempts integer NOT NULL DEFAULT 0,
  last_error text NOT NULL DEFAULT '',
  delivered_at timestamptz,
  abandoned_at timestamptz
);
CREATE INDEX outbox_pending ON fleet.outbox (due_at) WHERE delivered_at IS NULL AND abandoned_at IS NULL;
CREATE INDEX outbox_created_at ON fleet.outbox (created_at);
"""

REQUESTS = """
CREATE TABLE fleet.idempotency_key (
  subject text NOT NULL,
  key text NOT NULL,
  fingerprint bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  claimed_until timestamptz NOT NULL,
  claim uuid NOT NULL,
  applied_at timestamptz,
  status integer,
  headers jsonb,
  body bytea,
  CONSTRAINT idempotency_key_pkey PRIMARY KEY (subject, key)
);
CREATE INDEX idempotency_key_created_at ON fleet.idempotency_key (created_at);

CREATE UNLOGGED TABLE fleet.rate_limit (
  subject text NOT NULL,
  name text NOT NULL,
  hits timestamptz[] NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT rate_limit_pkey PRIMARY KEY (subject, name)
);
CREATE INDEX rate_limit_expires_at ON fleet.rate_limit (expires_at);

CREATE TABLE fleet.browser_session (
  token_hash bytea CONSTRAINT browser_session_pkey PRIMARY KEY,
  principal jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX browser_session_expires_at ON fleet.browser_session (expires_at);
COMMENT ON TABLE fleet.browser_session IS
  'Sessions of browsers. The cookie is stored as a hash: a dump of the database signs nobody in.';
"""

VAULT = """
CREATE TABLE fleet.vault_key (
  key_id text CONSTRAINT vault_key_pkey PRIMARY KEY,
  canary bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now()
);
COMMENT ON TABLE fleet.vault_key IS
  'Each key that ever sealed something here, with a value that proves that the loaded key is the same.';

CREATE TABLE fleet.internal_secret (
  name text CONSTRAINT internal_secret_pkey PRIMARY KEY,
  value bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT fleet.now()
);
"""


def upgrade() -> None:
    for statements in (CLOCK, AUDIT, DELIVERY, REQUESTS, VAULT):
        op.execute(statements)

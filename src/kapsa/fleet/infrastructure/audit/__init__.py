"""The audit trail in PostgreSQL.

- `trail`: entries, recorded in the transaction of the write, and erased on request.
- `chain`: the hashes, and the key that they need.
- `expiry`: the retention of actors and payloads.
- `sealer`: puts committed entries into the chain.
- `verifier`: detects changed, missing and inserted rows.
- `reader`: pages of entries.
"""

"""The vault: secrets sealed under keys that are outside the database.

- `encryption_keys`: the key-encryption keys, from a file or a variable.
- `envelope_vault`: sealing and opening, on a `key_wrapper`.
- `local_vault`: data keys wrapped by keys of this process.
- `transit_keys`: data keys wrapped by Vault, over its `transit_api`.
- `rotation`: all secrets moved to the primary key, and the check that the loaded keys are the right ones.
"""

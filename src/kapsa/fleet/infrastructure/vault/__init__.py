"""The vault: secrets sealed under keys that are outside the database.

- `encryption_keys`: the key-encryption keys, from a file or a variable.
- `local_vault`: sealing and opening.
- `rotation`: all secrets moved to the primary key, and the check that the loaded keys are the right ones.
"""

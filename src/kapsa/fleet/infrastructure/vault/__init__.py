"""The vault: sealing, key files, rotation."""

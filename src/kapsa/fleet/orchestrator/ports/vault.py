"""Sealed secrets: what is stored of a credential, and the vault that seals and opens it."""

from typing import Protocol

import msgspec

__all__ = ["KeyVault", "SealedSecret", "VaultError", "VaultUnavailable"]


class VaultError(Exception):
    """A secret that cannot be opened: an unknown key, or content that was changed or moved."""

    for_the_user = True


class VaultUnavailable(VaultError):  # noqa: N818 - the name says what happened
    """Keys that cannot be used now. The same call may succeed later, once the cause in the message is mended."""


class SealedSecret(msgspec.Struct, frozen=True):
    """A secret under a data key of its own, which is wrapped by a key-encryption key."""

    key_id: str
    """The key-encryption key that wraps the data key."""
    wrapped_key: bytes
    nonce: bytes
    ciphertext: bytes

    def __repr__(self) -> str:
        return f"SealedSecret(key_id={self.key_id!r}, {len(self.ciphertext)} bytes)"


class KeyVault(Protocol):
    """A vault whose keys are outside the database.

    A secret is bound to its purpose, table, row and version: it opens nowhere else.
    """

    async def seal(
        self, purpose: str, table: str, row_id: str, version: int, plaintext: bytes
    ) -> SealedSecret:
        """Seal a secret under a new data key. Raises VaultUnavailable if the keys cannot be used now."""
        ...

    async def open(self, sealed: SealedSecret, purpose: str, table: str, row_id: str, version: int) -> bytes:
        """Return the plaintext.

        Raises VaultError if the key is unknown, or the secret was not sealed for exactly this place, and
        VaultUnavailable if the keys cannot be used now.
        """
        ...

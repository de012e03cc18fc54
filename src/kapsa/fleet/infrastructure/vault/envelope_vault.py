"""The vault of envelopes: each secret under a data key of its own, which a key outside the database wraps.

A data key is random, has 256 bits, and encrypts one secret by AES-256-GCM.
"""

import secrets

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kapsa.fleet.infrastructure.vault.key_wrapper import KeyWrapper, WrappedKey
from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

__all__ = ["EnvelopeVault"]

_DATA_KEY_BITS = 256
_NONCE_BYTES = 12


class EnvelopeVault:
    """A vault on a wrapper of data keys."""

    def __init__(self, wrapper: KeyWrapper) -> None:
        self._wrapper = wrapper

    @property
    def primary_key(self) -> str:
        """The id of the key that seals."""
        return self._wrapper.primary_key

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys that can open."""
        return self._wrapper.key_ids

    async def refresh(self) -> None:
        """Learn which keys there are now. Raises VaultUnavailable if they cannot be asked for."""
        await self._wrapper.refresh()

    async def seal(
        self, purpose: str, table: str, row_id: str, version: int, plaintext: bytes
    ) -> SealedSecret:
        """Seal a secret under a new data key."""
        data_key = AESGCM.generate_key(_DATA_KEY_BITS)
        wrapped = await self._wrapper.wrap(data_key)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        bound = _bound_to(purpose, table, row_id, version)
        return SealedSecret(
            key_id=wrapped.key_id,
            wrapped_key=wrapped.wrapped,
            nonce=nonce,
            ciphertext=AESGCM(data_key).encrypt(nonce, plaintext, bound),
        )

    async def open(self, sealed: SealedSecret, purpose: str, table: str, row_id: str, version: int) -> bytes:
        """Return the plaintext.

        Raises VaultError if the key is unknown, or the secret was not sealed for exactly this row.
        """
        data_key = await self._wrapper.unwrap(WrappedKey(sealed.key_id, sealed.wrapped_key))
        bound = _bound_to(purpose, table, row_id, version)
        try:
            return AESGCM(data_key).decrypt(sealed.nonce, sealed.ciphertext, bound)
        except (InvalidTag, ValueError):
            raise VaultError(
                f"the {purpose} of {table} {row_id} version {version} cannot be opened: "
                "it was changed, or sealed for another row"
            ) from None

    async def rewrap(self, sealed: SealedSecret) -> SealedSecret:
        """Return the same secret with its data key wrapped by the primary key. The content stays encrypted."""
        again = await self._wrapper.rewrap(WrappedKey(sealed.key_id, sealed.wrapped_key))
        return msgspec.structs.replace(sealed, key_id=again.key_id, wrapped_key=again.wrapped)


def _bound_to(purpose: str, table: str, row_id: str, version: int) -> bytes:
    """Return the associated data. JSON keeps the parts apart: no two rows have the same."""
    return msgspec.json.encode([str(table), str(row_id), version, str(purpose)])

"""The vault whose key-encryption keys this process holds.

Each secret has a random 256-bit data key and is encrypted by AES-256-GCM. The data key is wrapped by AES key wrap
(RFC 3394), which needs no nonce, so one key-encryption key can wrap any number of data keys.
"""

import secrets

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from kapsa.fleet.infrastructure.vault.encryption_keys import KeySource
from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

__all__ = ["LocalVault"]

_DATA_KEY_BITS = 256
_NONCE_BYTES = 12


class LocalVault:
    """A vault on a ring of keys."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    @property
    def primary_key(self) -> str:
        """The id of the key that seals."""
        return self._source.ring().primary

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys that can open."""
        return frozenset(self._source.ring().keys)

    def seal(self, purpose: str, table: str, row_id: str, version: int, plaintext: bytes) -> SealedSecret:
        """Seal a secret under a new data key."""
        ring = self._source.ring()
        data_key = AESGCM.generate_key(_DATA_KEY_BITS)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        bound = _bound_to(purpose, table, row_id, version)
        return SealedSecret(
            key_id=ring.primary,
            wrapped_key=aes_key_wrap(ring.keys[ring.primary], data_key),
            nonce=nonce,
            ciphertext=AESGCM(data_key).encrypt(nonce, plaintext, bound),
        )

    def open(self, sealed: SealedSecret, purpose: str, table: str, row_id: str, version: int) -> bytes:
        """Return the plaintext.

        Raises VaultError if the key is unknown, or the secret was not sealed for exactly this row.
        """
        data_key = self._unwrap(sealed)
        bound = _bound_to(purpose, table, row_id, version)
        try:
            return AESGCM(data_key).decrypt(sealed.nonce, sealed.ciphertext, bound)
        except InvalidTag:
            raise VaultError(
                f"the {purpose} of {table} {row_id} version {version} cannot be opened: "
                "it was changed, or sealed for another row"
            ) from None

    def rewrap(self, sealed: SealedSecret) -> SealedSecret:
        """Return the same secret with its data key wrapped by the primary key. The content stays encrypted."""
        ring = self._source.ring()
        wrapped = aes_key_wrap(ring.keys[ring.primary], self._unwrap(sealed))
        return msgspec.structs.replace(sealed, key_id=ring.primary, wrapped_key=wrapped)

    def _unwrap(self, sealed: SealedSecret) -> bytes:
        key = self._source.ring().keys.get(sealed.key_id)
        if key is None:
            raise VaultError(
                f"the encryption key {sealed.key_id} is not loaded: add it to the encryption keys"
            )
        try:
            return aes_key_unwrap(key, sealed.wrapped_key)
        except InvalidUnwrap:
            raise VaultError(
                f"the encryption key {sealed.key_id} does not open this secret: it was changed, or the key was"
            ) from None


def _bound_to(purpose: str, table: str, row_id: str, version: int) -> bytes:
    """Return the associated data. JSON keeps the parts apart: no two rows have the same."""
    return msgspec.json.encode([str(table), str(row_id), version, str(purpose)])

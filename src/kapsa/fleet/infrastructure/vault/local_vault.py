"""The vault whose key-encryption keys this process holds.

A data key is wrapped by AES key wrap (RFC 3394), which needs no nonce, so one key-encryption key can wrap any number
of data keys.
"""

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from kapsa.fleet.infrastructure.vault.encryption_keys import KeySource
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.key_wrapper import WrappedKey
from kapsa.fleet.orchestrator.ports.vault import VaultError

__all__ = ["LocalKeyWrapper", "LocalVault"]


class LocalKeyWrapper:
    """A wrapper on a ring of keys."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    @property
    def primary_key(self) -> str:
        return self._source.ring().primary

    @property
    def key_ids(self) -> frozenset[str]:
        return frozenset(self._source.ring().keys)

    async def refresh(self) -> None:
        """Return at once: the source reads its file again by itself."""

    def has(self, key_id: str) -> bool:
        return key_id in self._source.ring().keys

    async def wrap(self, data_key: bytes) -> WrappedKey:
        ring = self._source.ring()
        return WrappedKey(ring.primary, aes_key_wrap(ring.keys[ring.primary], data_key))

    async def unwrap(self, key: WrappedKey) -> bytes:
        material = self._source.ring().keys.get(key.key_id)
        if material is None:
            raise VaultError(f"the encryption key {key.key_id} is not loaded: add it to the encryption keys")
        try:
            return aes_key_unwrap(material, key.wrapped)
        except InvalidUnwrap:
            raise VaultError(
                f"the encryption key {key.key_id} does not open this secret: it was changed, or the key was"
            ) from None

    async def rewrap(self, key: WrappedKey) -> WrappedKey:
        return await self.wrap(await self.unwrap(key))


class LocalVault(EnvelopeVault):
    """A vault on a ring of keys."""

    def __init__(self, source: KeySource) -> None:
        super().__init__(LocalKeyWrapper(source))

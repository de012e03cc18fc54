"""Data keys wrapped by Vault's transit engine: the key-encryption key never leaves Vault, and this process has none.

The id of a key has its version, so that it can be seen which versions are still needed. Opened data keys are kept in
memory for a few minutes: secrets that are in use stay usable through a short outage of Vault, and a token that was
revoked opens nothing more after that time.
"""

import collections
import hashlib
import re
import time
from collections.abc import Callable

from kapsa.fleet.infrastructure.vault.key_wrapper import WrappedKey
from kapsa.fleet.infrastructure.vault.transit_api import TransitApi
from kapsa.fleet.orchestrator.ports.vault import VaultError

__all__ = ["KEPT_SECONDS", "TransitKeyWrapper"]

KEPT_SECONDS = 300.0
"""Seconds for which an opened data key is kept."""
_MOST_KEPT = 5_000
_DATA_KEY_BYTES = 32
_CIPHERTEXT = re.compile(r"vault:v([1-9][0-9]{0,8}):[A-Za-z0-9+/=]+")


class TransitKeyWrapper:
    """A wrapper on one key of the transit engine."""

    def __init__(
        self, api: TransitApi, mount: str, key: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._prefix = f"vault:{mount}/{key}:v"
        self._versions = range(0)
        self._opened = _OpenedKeys(monotonic)

    @property
    def primary_key(self) -> str:
        return f"{self._prefix}{self._versions[-1]}"

    @property
    def key_ids(self) -> frozenset[str]:
        return frozenset(f"{self._prefix}{version}" for version in self._versions)

    async def refresh(self) -> None:
        info = await self._api.key_info()
        self._versions = range(max(1, info.min_decryption_version), info.latest_version + 1)

    def has(self, key_id: str) -> bool:
        return key_id.startswith(self._prefix) and key_id.removeprefix(self._prefix).isdecimal()

    async def wrap(self, data_key: bytes) -> WrappedKey:
        wrapped = self._wrapped(await self._api.encrypt(data_key))
        self._opened.put(wrapped, data_key)
        return wrapped

    async def unwrap(self, key: WrappedKey) -> bytes:
        if not self.has(key.key_id):
            raise VaultError(f"the encryption key {key.key_id} is not loaded: add it to the encryption keys")
        ciphertext = self._ciphertext(key)
        data_key = self._opened.get(key)
        if data_key is None:
            data_key = await self._api.decrypt(ciphertext)
            if len(data_key) != _DATA_KEY_BYTES:
                raise VaultError(f"the data key under {key.key_id} has a wrong size: it was changed")
            self._opened.put(key, data_key)
        return data_key

    async def rewrap(self, key: WrappedKey) -> WrappedKey:
        return self._wrapped(await self._api.rewrap(self._ciphertext(key)))

    def _wrapped(self, ciphertext: str) -> WrappedKey:
        match = _CIPHERTEXT.fullmatch(ciphertext)
        if match is None:
            raise VaultError("the ciphertext of Vault has an unknown form: expected vault:vN:BASE64")
        return WrappedKey(f"{self._prefix}{match[1]}", ciphertext.encode())

    def _ciphertext(self, key: WrappedKey) -> str:
        text = key.wrapped.decode("ascii", "replace")
        if not _CIPHERTEXT.fullmatch(text) or self._wrapped(text).key_id != key.key_id:
            raise VaultError(f"the data key under {key.key_id} is malformed: it was changed")
        return text


class _OpenedKeys:
    """Data keys in memory, by the hash of their wrapped form; the oldest go first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._keys: collections.OrderedDict[bytes, tuple[float, bytes]] = collections.OrderedDict()

    def get(self, key: WrappedKey) -> bytes | None:
        self._drop_old()
        entry = self._keys.get(hashlib.sha256(key.wrapped).digest())
        return None if entry is None else entry[1]

    def put(self, key: WrappedKey, data_key: bytes) -> None:
        digest = hashlib.sha256(key.wrapped).digest()
        self._keys.pop(digest, None)
        self._keys[digest] = (self._monotonic() + KEPT_SECONDS, data_key)
        self._drop_old()

    def _drop_old(self) -> None:
        now = self._monotonic()
        while self._keys and (len(self._keys) > _MOST_KEPT or next(iter(self._keys.values()))[0] <= now):
            self._keys.popitem(last=False)

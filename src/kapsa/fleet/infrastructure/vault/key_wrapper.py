"""The wrapper of data keys: what a vault needs of the keys that are outside the database."""

from typing import Protocol

import msgspec

__all__ = ["KeyWrapper", "LayeredKeyWrapper", "WrappedKey"]


class WrappedKey(msgspec.Struct, frozen=True):
    """A data key as it is stored."""

    key_id: str
    """The key-encryption key that wraps it."""
    wrapped: bytes

    def __repr__(self) -> str:
        return f"WrappedKey(key_id={self.key_id!r})"


class KeyWrapper(Protocol):
    """Key-encryption keys: one that wraps, and all that unwrap.

    Each method raises VaultError, and VaultUnavailable if the same call may succeed later.
    """

    @property
    def primary_key(self) -> str:
        """The id of the key that wraps."""
        ...

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys that can unwrap."""
        ...

    async def refresh(self) -> None:
        """Learn which keys there are now."""
        ...

    def has(self, key_id: str) -> bool:
        """Return whether a data key under this id is a matter of this wrapper."""
        ...

    async def wrap(self, data_key: bytes) -> WrappedKey:
        """Wrap a data key with the primary key."""
        ...

    async def unwrap(self, key: WrappedKey) -> bytes:
        """Return a data key."""
        ...

    async def rewrap(self, key: WrappedKey) -> WrappedKey:
        """Wrap a data key again, with the primary key."""
        ...


class LayeredKeyWrapper:
    """One wrapper that wraps, and another that still unwraps: the move from one place of keys to another."""

    def __init__(self, first: KeyWrapper, second: KeyWrapper) -> None:
        self._first = first
        self._second = second

    @property
    def primary_key(self) -> str:
        return self._first.primary_key

    @property
    def key_ids(self) -> frozenset[str]:
        return self._first.key_ids | self._second.key_ids

    async def refresh(self) -> None:
        await self._first.refresh()
        await self._second.refresh()

    def has(self, key_id: str) -> bool:
        return self._first.has(key_id) or self._second.has(key_id)

    async def wrap(self, data_key: bytes) -> WrappedKey:
        return await self._first.wrap(data_key)

    async def unwrap(self, key: WrappedKey) -> bytes:
        return await self._owner(key).unwrap(key)

    async def rewrap(self, key: WrappedKey) -> WrappedKey:
        if self._first.has(key.key_id):
            return await self._first.rewrap(key)
        return await self._first.wrap(await self._second.unwrap(key))

    def _owner(self, key: WrappedKey) -> KeyWrapper:
        return self._first if self._first.has(key.key_id) else self._second

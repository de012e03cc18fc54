"""A vault whose keys a test takes away, or makes slow, as an outage of Vault does."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.key_wrapper import WrappedKey
from kapsa.fleet.infrastructure.vault.local_vault import LocalKeyWrapper
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable

_IN_TRANSACTION = contextvars.ContextVar("_IN_TRANSACTION", default=False)

AWAY = "Vault is sealed: unseal it"
LOST = "the ciphertext was changed"


class OutageWrapper(LocalKeyWrapper):
    """Keys that are there, away, or lost for good."""

    def __init__(self) -> None:
        super().__init__(FixedKeys(KeyRing.parse(new_key_text(), "test")))
        self.away = False
        self.away_to_seal = False
        """True if keys that were opened before still open, and nothing new can be sealed."""
        self.seconds = 0.0
        """Time that each call takes."""
        self.calls = 0
        self.at_once = 0
        """The largest number of calls at the same time."""
        self.in_transactions = 0
        """Calls by a task that had a transaction open, of a database that is watched."""
        self._under_way = 0
        self._made: set[bytes] = set()
        self._lost: set[bytes] = set()

    def lose(self) -> None:
        """Lose what was sealed so far: it can never be opened again."""
        self._lost |= self._made

    async def wrap(self, data_key: bytes) -> WrappedKey:
        await self._answer()
        if self.away_to_seal:
            raise VaultUnavailable(AWAY)
        wrapped = await super().wrap(data_key)
        self._made.add(wrapped.wrapped)
        return wrapped

    async def unwrap(self, key: WrappedKey) -> bytes:
        await self._answer()
        if key.wrapped in self._lost:
            raise VaultError(LOST)
        return await super().unwrap(key)

    async def _answer(self) -> None:
        self.calls += 1
        self.in_transactions += _IN_TRANSACTION.get()
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._under_way -= 1
        if self.away:
            raise VaultUnavailable(AWAY)


class OutageVault(EnvelopeVault):
    """A vault on keys that a test can take away."""

    def __init__(self) -> None:
        self.keys = OutageWrapper()
        super().__init__(self.keys)


def watch_transactions(database: Database) -> None:
    """Let a database note which tasks have a transaction open: none of them may wait for keys."""
    begin = database.transaction

    @asynccontextmanager
    async def transaction(**options: Any) -> AsyncIterator[Any]:
        async with begin(**options) as connection:
            token = _IN_TRANSACTION.set(True)
            try:
                yield connection
            finally:
                _IN_TRANSACTION.reset(token)

    database.transaction = transaction  # type: ignore[method-assign]

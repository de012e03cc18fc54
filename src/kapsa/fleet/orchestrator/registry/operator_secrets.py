"""Secrets of operators: values of charts, and logins of chart repositories."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.fleet.domain.registry.operators import ManagedOperator
from kapsa.fleet.orchestrator.bounded_calls import bounded
from kapsa.fleet.orchestrator.ports.charts import RepositoryLogin
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository, StoredSecret
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import KeyVault, VaultError, VaultUnavailable

__all__ = ["OpenedValues", "OperatorSecrets", "SecretChange"]

log = structlog.get_logger()

OpenedValues = Mapping[str, Any] | None
"""Secret values; None if they are stored and cannot be opened."""

_PARALLEL = 8
"""Secrets of a list that are opened at a time."""
_TABLE = "operator_secret"
_LOGIN, _VALUES = "repository-login", "secret-values"


class SecretChange(msgspec.Struct, frozen=True):
    """A secret that is sealed and waits for the transaction that stores it."""

    purpose: str
    secret: StoredSecret | None
    """None to erase the one that is stored."""


class OperatorSecrets:
    """Secrets of operators: sealed for the database, opened for a pull or a render."""

    def __init__(self, repository: OperatorRepository, vault: KeyVault, *, patience: float = 1.0) -> None:
        """`patience` is the number of seconds that readers of operators wait for the vault."""
        self._repository = repository
        self._vault = vault
        self._patience = patience

    async def stored_values(self, connection: Connection, operator_id: uuid.UUID) -> StoredSecret | None:
        """Return the secret values of an operator, sealed. They win over its plain values."""
        return await self._repository.secret(connection, operator_id, _VALUES)

    async def stored_login(self, connection: Connection, operator_id: uuid.UUID) -> StoredSecret | None:
        """Return the login for an operator's repository, sealed."""
        return await self._repository.secret(connection, operator_id, _LOGIN)

    async def open_values(self, operator_id: uuid.UUID, stored: StoredSecret | None) -> dict[str, Any]:
        """Return secret values. Called with no transaction open, since the vault may be slow."""
        content = await self._open(operator_id, stored)
        return msgspec.json.decode(content, type=dict[str, Any]) if content else {}

    async def open_login(self, operator_id: uuid.UUID, stored: StoredSecret | None) -> RepositoryLogin | None:
        """Return a login. Called with no transaction open, since the vault may be slow."""
        content = await self._open(operator_id, stored)
        return msgspec.json.decode(content, type=RepositoryLogin) if content else None

    async def stored_of(
        self, connection: Connection, operators: Sequence[ManagedOperator]
    ) -> dict[uuid.UUID, StoredSecret]:
        """Return the secret values of operators that have some, sealed, by their ids."""
        ids = tuple(each.id for each in operators if each.secret_paths)
        return await self._repository.secrets(connection, ids, _VALUES) if ids else {}

    async def opened(
        self, operators: Sequence[ManagedOperator], stored: Mapping[uuid.UUID, StoredSecret]
    ) -> dict[uuid.UUID, OpenedValues]:
        """Return secret values of operators by their ids, to hide what repeats them.

        Those that cannot be opened in a moment are None: an operator must be readable without its key.
        """
        names = {each.id: each.name for each in operators}
        values: dict[uuid.UUID, OpenedValues] = dict.fromkeys(stored)

        async def open_one(operator_id: uuid.UUID, secret: StoredSecret) -> None:
            try:
                values[operator_id] = await self.open_values(operator_id, secret)
            except VaultUnavailable:
                raise  # nor can the others be opened now, and each attempt may take long
            except VaultError as error:
                name = names[operator_id]
                log.warning("all values of an operator are hidden", operator=name, error=str(error))

        try:
            async with asyncio.timeout(self._patience):
                await bounded(_PARALLEL, (open_one(*each) for each in stored.items()))
        except (VaultUnavailable, TimeoutError) as error:
            hidden = sum(value is None for value in values.values())
            reason = str(error) or f"the vault took longer than {self._patience:g} seconds"
            log.warning("all values of operators are hidden", operators=hidden, error=reason)
        return values

    async def seal_values(
        self, operator_id: uuid.UUID, values: Mapping[str, Any], *, before: StoredSecret | None = None
    ) -> SecretChange:
        """Seal secret values that replace those before; empty ones erase them.

        Called with no transaction open, since the vault may be slow.
        """
        content = msgspec.json.encode(values) if values else b""
        return await self._seal(operator_id, _VALUES, content, before)

    async def seal_login(
        self,
        operator_id: uuid.UUID,
        login: RepositoryLogin | None,
        *,
        before: StoredSecret | None = None,
    ) -> SecretChange:
        """Seal a login that replaces the one before; None erases it. See `seal_values`."""
        content = msgspec.json.encode(login) if login else b""
        return await self._seal(operator_id, _LOGIN, content, before)

    async def put(self, connection: Connection, operator_id: uuid.UUID, change: SecretChange) -> None:
        """Store a sealed secret in place of the one before, or erase that one."""
        await self._repository.put_secret(connection, operator_id, change.secret, change.purpose)

    async def _open(self, operator_id: uuid.UUID, stored: StoredSecret | None) -> bytes:
        if stored is None:
            return b""
        row = str(operator_id)
        return await self._vault.open(stored.sealed, stored.purpose, _TABLE, row, stored.version)

    async def _seal(
        self, operator_id: uuid.UUID, purpose: str, content: bytes, before: StoredSecret | None
    ) -> SecretChange:
        if not content:
            return SecretChange(purpose, None)
        version = before.version + 1 if before is not None else 1
        sealed = await self._vault.seal(purpose, _TABLE, str(operator_id), version, content)
        return SecretChange(purpose, StoredSecret(purpose, version, sealed))

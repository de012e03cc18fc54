"""Secrets of operators: values of charts, and logins of chart repositories."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.fleet.domain.registry.operators import ManagedOperator
from kapsa.fleet.orchestrator.ports.charts import RepositoryLogin
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository, StoredSecret
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import KeyVault, VaultError, VaultUnavailable

__all__ = ["OpenedValues", "OperatorSecrets"]

log = structlog.get_logger()

OpenedValues = Mapping[str, Any] | None
"""Secret values; None if they are stored and cannot be opened."""

_PARALLEL = 8
"""Secrets of a list that are opened at a time."""
_TABLE = "operator_secret"
_LOGIN, _VALUES = "repository-login", "secret-values"


class OperatorSecrets:
    """Secrets of operators: sealed for the database, opened for a pull or a render."""

    def __init__(self, repository: OperatorRepository, vault: KeyVault) -> None:
        self._repository = repository
        self._vault = vault

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

    async def sealed(
        self, connection: Connection, operators: Sequence[ManagedOperator]
    ) -> dict[uuid.UUID, StoredSecret]:
        """Return the sealed secret values of operators that have some, by their ids."""
        ids = tuple(each.id for each in operators if each.secret_paths)
        return await self._repository.secrets(connection, ids, _VALUES) if ids else {}

    async def opened(self, sealed: Mapping[uuid.UUID, StoredSecret]) -> dict[uuid.UUID, OpenedValues]:
        """Return secret values, to hide what repeats them. A vault may be slow: keep no transaction open for a list.

        Those that cannot be opened are None: an operator must be readable without its key.
        """
        slots, unavailable = asyncio.Semaphore(_PARALLEL), asyncio.Event()

        async def open_one(operator_id: uuid.UUID, secret: StoredSecret) -> OpenedValues:
            async with slots:
                if unavailable.is_set():
                    return None  # nor can the others be opened now, and each attempt may take long
                try:
                    content = await self._vault.open(
                        secret.sealed, _VALUES, _TABLE, str(operator_id), secret.version
                    )
                except VaultError as error:
                    log.warning(
                        "all values of an operator are hidden", operatorId=str(operator_id), error=str(error)
                    )
                    if isinstance(error, VaultUnavailable):
                        unavailable.set()
                    return None
            return msgspec.json.decode(content, type=dict[str, Any])

        values = await asyncio.gather(*(open_one(*each) for each in sealed.items()))
        return dict(zip(sealed, values, strict=True))

    async def put_values(
        self, connection: Connection, operator_id: uuid.UUID, values: Mapping[str, Any]
    ) -> None:
        """Seal secret values in place of those before; empty ones erase them."""
        await self._put(connection, operator_id, _VALUES, msgspec.json.encode(values) if values else b"")

    async def put_login(
        self, connection: Connection, operator_id: uuid.UUID, login: RepositoryLogin | None
    ) -> None:
        """Seal a login in place of the one before; None erases it."""
        await self._put(connection, operator_id, _LOGIN, msgspec.json.encode(login) if login else b"")

    async def _open(self, operator_id: uuid.UUID, stored: StoredSecret | None) -> bytes:
        if stored is None:
            return b""
        row = str(operator_id)
        return await self._vault.open(stored.sealed, stored.purpose, _TABLE, row, stored.version)

    async def _put(
        self, connection: Connection, operator_id: uuid.UUID, purpose: str, content: bytes
    ) -> None:
        before = await self._repository.secret(connection, operator_id, purpose)
        version = before.version + 1 if before is not None else 1
        secret = None
        if content:
            sealed = await self._vault.seal(purpose, _TABLE, str(operator_id), version, content)
            secret = StoredSecret(purpose, version, sealed)
        await self._repository.put_secret(connection, operator_id, secret, purpose)

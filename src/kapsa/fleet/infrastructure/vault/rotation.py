"""Key rotation, and the check at the start that the loaded keys are those of the database.

Rotation wraps each data key again and touches no content. It compares before it writes, so it runs under load:
a secret that was replaced meanwhile is left alone, and the next round looks at it.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec
from sqlalchemy import Column, LargeBinary, Table, cast, delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import vault_key
from kapsa.fleet.infrastructure.postgres.tables.metadata import declared_metadata
from kapsa.fleet.infrastructure.postgres.tables.sealed_column import SealedColumn
from kapsa.fleet.infrastructure.vault.encryption_keys import KeyRingError
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable

__all__ = ["Rotation", "check_keys", "rewrap_all", "secrets_by_key"]

_CANARY = b"kapsa"
_BATCH = 200
_ROUNDS = 5
"""Rounds over all secrets. One is enough unless a manager still seals under an older key."""


class Rotation(msgspec.Struct, frozen=True):
    """The result of a rotation."""

    rewrapped: int
    damaged: tuple[str, ...]
    """Secrets that no loaded key opens."""
    remaining: Mapping[str, int]
    """Secrets that are still under other keys, by key."""


async def check_keys(database: Database, vault: EnvelopeVault) -> None:
    """Raise KeyRingError unless every key that the database needs is loaded, and is the one that it was.

    Also records the primary key, so that the next start needs it.
    """
    await vault.refresh()
    in_use = await secrets_by_key(database)
    async with database.transaction() as connection:
        rows = (await connection.execute(select(vault_key.c.key_id, vault_key.c.canary))).all()
    missing = sorted({*in_use, *(row.key_id for row in rows)} - vault.key_ids)
    if missing:
        raise KeyRingError(
            f"secrets in {database.description} need the encryption key {', '.join(missing)}, "
            f"but the loaded keys are {', '.join(sorted(vault.key_ids))}: load it too"
        )
    for row in rows:
        await _check_canary(vault, row.key_id, row.canary)
    primary = vault.primary_key
    canary = await vault.seal("canary", vault_key.name, primary, 1, _CANARY)
    async with database.transaction() as connection:
        await connection.execute(
            insert(vault_key).values(key_id=primary, canary=canary).on_conflict_do_nothing()
        )


async def rewrap_all(database: Database, vault: EnvelopeVault) -> Rotation:
    """Wrap every data key by the primary key, and forget the keys that no secret needs any more."""
    await check_keys(database, vault)
    rewrapped = 0
    damaged: list[str] = []
    for _ in range(_ROUNDS):
        damaged.clear()
        before = rewrapped
        for table, column in _sealed_columns():
            async for row in _under_other_keys(database, vault, table, column):
                try:
                    rewrapped += await _rewrap(database, vault, table, column, row)
                except VaultUnavailable:
                    raise
                except VaultError as error:
                    damaged.append(f"{table.name} {', '.join(map(str, row[:-1]))}: {error}")
        if rewrapped == before:
            break
    remaining = {key: n for key, n in (await secrets_by_key(database)).items() if key != vault.primary_key}
    await _forget_keys(database, {vault.primary_key, *remaining})
    return Rotation(rewrapped, tuple(damaged), remaining)


async def secrets_by_key(database: Database) -> dict[str, int]:
    """Return the number of secrets under each key."""
    counts: dict[str, int] = {}
    async with database.transaction() as connection:
        for _, column in _sealed_columns():
            name = _key_of(column)
            query = select(name, func.count()).where(column.is_not(None)).group_by(name)
            for key_id, count in await connection.execute(query):
                counts[bytes(key_id).decode()] = counts.get(bytes(key_id).decode(), 0) + count
    return counts


async def _check_canary(vault: EnvelopeVault, key_id: str, canary: Any) -> None:
    try:
        await vault.open(canary, "canary", vault_key.name, key_id, 1)
    except VaultUnavailable:
        raise
    except VaultError:
        raise KeyRingError(
            f"the loaded encryption key {key_id} is not the one that sealed the secrets of this database: "
            "load the original key under this id"
        ) from None


def _key_of(column: Column[Any]) -> Any:
    """Return the expression for the id of the key that a secret is under."""
    raw = cast(column, LargeBinary)
    return func.substring(raw, 3, func.get_byte(raw, 1))


def _sealed_columns() -> Iterator[tuple[Table, Column[Any]]]:
    """Return every column of a sealed secret, but the canaries, which belong to their keys."""
    for table in declared_metadata().sorted_tables:
        if table is not vault_key:
            yield from ((table, column) for column in table.columns if isinstance(column.type, SealedColumn))


async def _under_other_keys(
    database: Database, vault: EnvelopeVault, table: Table, column: Column[Any]
) -> AsyncIterator[tuple[Any, ...]]:
    """Return the primary key and the secret of each row that is not under the primary key of the vault."""
    keys = list(table.primary_key.columns)
    outdated = _key_of(column) != vault.primary_key.encode()
    query = select(*keys, column).where(outdated).order_by(*keys).limit(_BATCH)
    position: tuple[Any, ...] = ()
    while True:
        page = query.where(tuple_(*keys) > tuple_(*position)) if position else query
        async with database.transaction() as connection:
            rows = (await connection.execute(page)).all()
        for row in rows:
            yield tuple(row)
        if len(rows) < _BATCH:
            return
        position = tuple(rows[-1][:-1])


async def _rewrap(
    database: Database, vault: EnvelopeVault, table: Table, column: Column[Any], row: tuple[Any, ...]
) -> int:
    """Replace one secret unless it was replaced meanwhile: a lock on one row, for one statement."""
    identity, sealed = row[:-1], row[-1]
    same = [key == value for key, value in zip(table.primary_key.columns, identity, strict=True)]
    again = await vault.rewrap(sealed)
    update = table.update().where(*same, column == sealed).values({column.name: again})
    async with database.transaction() as connection:
        return (await connection.execute(update)).rowcount


async def _forget_keys(database: Database, needed: set[str]) -> None:
    async with database.transaction() as connection:
        await connection.execute(delete(vault_key).where(vault_key.c.key_id.not_in(needed)))

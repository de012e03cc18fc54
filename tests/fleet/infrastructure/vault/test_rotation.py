"""Key rotation in a database: under load, with a stale writer, with a damaged secret; and the check at the start."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import Column, Table, insert, select, text, update

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables import registry, rollouts
from kapsa.fleet.infrastructure.postgres.tables.foundation import internal_secret, vault_key
from kapsa.fleet.infrastructure.postgres.tables.metadata import declared_metadata
from kapsa.fleet.infrastructure.postgres.tables.sealed_column import SealedColumn
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, KeyRingError, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.infrastructure.vault.rotation import check_keys, rewrap_all, secrets_by_key
from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

OLD, NEW = new_key_text(lambda: "old"), new_key_text(lambda: "new")


def vault_with(*texts: str) -> LocalVault:
    return LocalVault(FixedKeys(KeyRing.parse("\n".join(texts), "test")))


def bound(name: str) -> tuple[str, str, str, int]:
    return ("test", "internal_secret", name, 1)


async def store(database: Database, vault: LocalVault, name: str, content: bytes) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            insert(internal_secret).values(name=name, value=await vault.seal(*bound(name), content))
        )


async def load(database: Database, name: str) -> SealedSecret:
    async with database.transaction() as connection:
        query = select(internal_secret.c.value).where(internal_secret.c.name == name)
        sealed: SealedSecret = (await connection.execute(query)).scalar_one()
        return sealed


async def overwrite(database: Database, vault: LocalVault, name: str, content: bytes) -> None:
    sealed = await vault.seal(*bound(name), content)
    async with database.transaction() as connection:
        await connection.execute(
            update(internal_secret).where(internal_secret.c.name == name).values(value=sealed)
        )


Row = tuple[Table, dict[str, Any], dict[str, Any]]
"""A table, the primary key of a row, and its other columns."""


async def one_row_of_each_table(vault: LocalVault) -> list[Row]:
    """Return a row of each table with sealed secrets, after the rows that they refer to."""
    operator_id, cluster_id, deployment_id = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    rows: list[Row] = [
        (registry.operator, {"id": operator_id}, {
            "name": "gadgets", "namespace": "gadgets", "source": {}, "values": {}, "environment_values": {},
            "secret_paths": [], "has_credentials": True, "created_by": "ada", "version": 1,
        }),
        (registry.cluster, {"id": cluster_id}, {
            "name": "prod", "environment": "Production", "labels": {}, "server": "https://prod.example.com",
            "health": {}, "windows": [], "freezes": [], "created_by": "ada", "version": 1,
        }),
        (registry.cluster_credential, {"cluster_id": cluster_id, "purpose": "kubeconfig"}, {"version": 1}),
        (registry.operator_secret, {"operator_id": operator_id, "purpose": "values"}, {"version": 1}),
        (registry.cluster_operator, {"cluster_id": cluster_id, "operator_id": operator_id}, {
            "release": "gadgets", "namespace": "gadgets", "adopted_revision": 1, "adopted_version": "1.0.0",
            "adopted_by": "ada", "values_version": 1,
        }),
        (rollouts.deployment, {"id": deployment_id}, {
            "operator_id": operator_id, "operator_name": "gadgets", "phase": "Planning", "document": {},
        }),
        (rollouts.deployment_bundle, {"deployment_id": deployment_id, "cluster_id": cluster_id}, {}),
        (internal_secret, {"name": "internal"}, {}),
    ]  # fmt: skip
    for table, _, values in rows:
        for column in sealed_columns(table):
            values[column.name] = await vault.seal(*bound_in(table), table.name.encode())
    return rows


def sealed_columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if isinstance(column.type, SealedColumn)]


def every_sealed_column() -> list[Column[Any]]:
    """Return the columns of all sealed secrets but the canaries, which belong to their keys."""
    declared = [table for table in declared_metadata().sorted_tables if table is not vault_key]
    return [column for table in declared for column in sealed_columns(table)]


def bound_in(table: Table) -> tuple[str, str, str, int]:
    return ("test", table.name, "row", 1)


async def stored_in(database: Database, column: Column[Any], key: dict[str, Any]) -> SealedSecret:
    async with database.transaction() as connection:
        same = [column.table.c[name] == value for name, value in key.items()]
        sealed: SealedSecret = (await connection.execute(select(column).where(*same))).scalar_one()
        return sealed


async def test_rotation_moves_every_secret_to_the_new_key(database: Database) -> None:
    old = vault_with(OLD)
    await check_keys(database, old)
    names = [f"s{number:03}" for number in range(250)]  # more than a batch
    rows = [{"name": name, "value": await old.seal(*bound(name), name.encode())} for name in names]
    async with database.transaction() as connection:
        await connection.execute(insert(internal_secret), rows)
    rotation = await rewrap_all(database, vault_with(NEW, OLD))
    assert (rotation.rewrapped, rotation.damaged, rotation.remaining) == (250, (), {})
    assert await secrets_by_key(database) == {"new": 250}
    alone = vault_with(NEW)
    await check_keys(database, alone)
    assert await alone.open(await load(database, "s249"), *bound("s249")) == b"s249"


async def test_rotation_moves_a_secret_of_every_table(database: Database) -> None:
    old = vault_with(OLD)
    rows = await one_row_of_each_table(old)
    async with database.transaction() as connection:
        for table, key, values in rows:
            await connection.execute(insert(table).values(**key, **values))
    rotation = await rewrap_all(database, vault_with(NEW, OLD))
    columns = [(table, key, column) for table, key, _ in rows for column in sealed_columns(table)]
    assert {column for _, _, column in columns} == set(every_sealed_column())
    assert (rotation.rewrapped, rotation.remaining) == (len(columns), {})
    alone = vault_with(NEW)
    for table, key, column in columns:
        sealed = await stored_in(database, column, key)
        assert await alone.open(sealed, *bound_in(table)) == table.name.encode()


async def test_rotation_under_load_loses_no_write_and_stops_no_reader(database: Database) -> None:
    old, both = vault_with(OLD), vault_with(NEW, OLD)
    busy, quiet = [f"busy{number}" for number in range(6)], [f"quiet{number:03}" for number in range(250)]
    for name in (*busy, *quiet):
        await store(database, old, name, b"0")
    written = dict.fromkeys(busy, 0)
    rotating = asyncio.Event()
    during = 0

    async def write_and_read(mine: list[str]) -> None:
        nonlocal during
        while rotating.is_set():
            for name in mine:
                await overwrite(database, both, name, b"%d" % (written[name] + 1))
                written[name] += 1
                during += rotating.is_set()
                assert await both.open(await load(database, name), *bound(name)) == b"%d" % written[name]

    rotating.set()
    writers = [asyncio.create_task(write_and_read(busy[n::3])) for n in range(3)]
    rotation = await rewrap_all(database, both)
    rotating.clear()
    await asyncio.gather(*writers)
    assert during > len(busy)
    assert rotation.rewrapped >= len(quiet)
    assert (rotation.damaged, rotation.remaining) == ((), {})
    alone = vault_with(NEW)
    for name, content in (
        {name: b"%d" % n for name, n in written.items()} | dict.fromkeys(quiet, b"0")
    ).items():
        assert await alone.open(await load(database, name), *bound(name)) == content


@pytest.mark.parametrize("sealed_by", ["the new key", "the old key"])
async def test_a_secret_that_is_replaced_while_it_is_rewrapped_keeps_its_new_content(
    database: Database, sealed_by: str
) -> None:
    old, both = vault_with(OLD), vault_with(NEW, OLD)
    await store(database, old, "a", b"before")
    await store(database, old, "b", b"untouched")
    outdated = await load(database, "a")
    rewrapped: list[SealedSecret] = []

    class Interrupted(LocalVault):
        """A vault that rewraps while another replica replaces the secret."""

        async def rewrap(self, sealed: SealedSecret) -> SealedSecret:
            rewrapped.append(sealed)
            if sealed == outdated:
                await overwrite(database, both if sealed_by == "the new key" else old, "a", b"after")
            return await super().rewrap(sealed)

    rotation = await rewrap_all(database, Interrupted(FixedKeys(KeyRing.parse(f"{NEW}\n{OLD}", "test"))))
    attempts = 2 if sealed_by == "the new key" else 3  # in the second round, for a secret under the old key
    assert (len(rewrapped), rotation.rewrapped, rotation.remaining) == (attempts, attempts - 1, {})
    alone = vault_with(NEW)
    assert await alone.open(await load(database, "a"), *bound("a")) == b"after"
    assert await alone.open(await load(database, "b"), *bound("b")) == b"untouched"


async def test_secrets_of_a_manager_that_still_seals_under_the_old_key_are_reported(
    database: Database,
) -> None:
    stale, both = vault_with(OLD), vault_with(NEW, OLD)
    await check_keys(database, stale)
    await store(database, stale, "a", b"a")
    await rewrap_all(database, both)
    await store(database, stale, "late", b"late")
    assert await secrets_by_key(database) == {"new": 1, "old": 1}
    with pytest.raises(KeyRingError, match="need the encryption key old"):
        await check_keys(database, vault_with(NEW))
    assert (await rewrap_all(database, both)).rewrapped == 1


async def test_a_damaged_secret_does_not_stop_the_others(database: Database) -> None:
    old = vault_with(OLD)
    await check_keys(database, old)
    for name in ("a", "b", "c"):
        await store(database, old, name, b"content")
    async with database.transaction() as connection:
        damage = "UPDATE fleet.internal_secret SET value = set_byte(value, 10, get_byte(value, 10) # 1) WHERE name = 'b'"
        await connection.execute(text(damage))
    rotation = await rewrap_all(database, vault_with(NEW, OLD))
    assert rotation.rewrapped == 2
    assert len(rotation.damaged) == 1
    assert rotation.damaged[0].startswith("internal_secret b: ")
    assert rotation.remaining == {"old": 1}


async def test_ciphertext_moved_between_rows_does_not_open(database: Database) -> None:
    vault = vault_with(OLD)
    await store(database, vault, "a", b"for a")
    await store(database, vault, "b", b"for b")
    async with database.transaction() as connection:
        move = "UPDATE fleet.internal_secret SET value = (SELECT value FROM fleet.internal_secret WHERE name = 'a')"
        await connection.execute(text(move))
    assert await vault.open(await load(database, "a"), *bound("a")) == b"for a"
    with pytest.raises(VaultError, match="sealed for another row"):
        await vault.open(await load(database, "b"), *bound("b"))


async def test_a_start_without_a_key_that_the_database_needs_is_refused(database: Database) -> None:
    await check_keys(database, vault_with(OLD))
    with pytest.raises(KeyRingError, match="need the encryption key old, but the loaded keys are new"):
        await check_keys(database, vault_with(NEW))


async def test_a_start_with_another_key_of_the_same_id_is_refused(database: Database) -> None:
    await check_keys(database, vault_with(OLD))
    with pytest.raises(KeyRingError, match="key old is not the one that sealed"):
        await check_keys(database, vault_with(new_key_text(lambda: "old")))


@pytest.mark.parametrize("stored", [b"", b"\x02abc", b"\x01\x03old", b"\x01\x01\xff" + bytes(60)])
async def test_a_damaged_envelope_is_reported_as_such(database: Database, stored: bytes) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO fleet.internal_secret (name, value) VALUES ('a', :stored)"), {"stored": stored}
        )
    with pytest.raises(VaultError, match="it was changed"):
        await load(database, "a")

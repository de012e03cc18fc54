"""Key rotation in a database: under load, with a stale writer, with a damaged secret; and the check at the start."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select, text, update

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import internal_secret
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


async def test_rotation_under_load_loses_no_write_and_stops_no_reader(database: Database) -> None:
    old, both = vault_with(OLD), vault_with(NEW, OLD)
    names = [f"s{number}" for number in range(30)]
    for name in names:
        await store(database, old, name, b"0")
    written = dict.fromkeys(names, 0)
    rotated = asyncio.Event()

    async def write_and_read(mine: list[str], vault: LocalVault) -> None:
        while not rotated.is_set():
            for name in mine:
                sealed = await vault.seal(*bound(name), b"%d" % (written[name] + 1))
                async with database.transaction() as connection:
                    await connection.execute(
                        update(internal_secret).where(internal_secret.c.name == name).values(value=sealed)
                    )
                written[name] += 1
                assert await both.open(await load(database, name), *bound(name)) == b"%d" % written[name]

    writers = [asyncio.create_task(write_and_read(names[n::3], both)) for n in range(3)]
    await asyncio.sleep(0.02)
    rotation = await rewrap_all(database, both)
    rotated.set()
    await asyncio.gather(*writers)
    assert rotation.remaining == {}
    alone = vault_with(NEW)
    for name in names:
        assert await alone.open(await load(database, name), *bound(name)) == b"%d" % written[name]


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

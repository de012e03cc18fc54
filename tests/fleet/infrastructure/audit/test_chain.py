"""The audit chain: commit order, erasure, and every kind of tampering."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

import kapsa.fleet
from kapsa.fleet.infrastructure.audit.chain import chain_key, content_hash, entry_signature
from kapsa.fleet.infrastructure.audit.sealer import AuditSealer
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.audit.verifier import AuditReport, verify_chain
from kapsa.fleet.infrastructure.postgres.advisory_locks import AdvisoryLock
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.ports.audit import AuditEntry

KEY = bytes(range(32))
TRAIL = PostgresAuditTrail(KEY)


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        actor="ada", action="cluster.register", object_kind="cluster", object_id=f"id-{number}",
        payload={"name": f"prod-{number}", "big": 1e22, "text": "\x00é"},
    )  # fmt: skip


async def record(database: Database, *numbers: int) -> None:
    for number in numbers:
        async with database.transaction() as connection:
            await TRAIL.record(connection, entry(number))


async def sealed_chain(database: Database, count: int = 6) -> None:
    await record(database, *range(1, count + 1))
    assert await AuditSealer(database, KEY).seal() == count


async def execute(database: Database, statement: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(statement))


async def problems(database: Database) -> list[str]:
    return [finding.problem for finding in (await verify_chain(database, KEY)).findings]


async def chained_objects(database: Database) -> list[str]:
    query = """SELECT object_id FROM fleet.audit_seal s JOIN fleet.audit_entry e ON e.id = s.entry_id
               ORDER BY s.sequence"""
    async with database.transaction() as connection:
        return list((await connection.execute(text(query))).scalars())


async def test_a_transaction_that_counts_deployments_does_not_keep_the_sealer_waiting(
    database: Database,
) -> None:
    await record(database, 1)
    async with database.transaction() as connection:
        await PostgresRollouts().running(connection)
        assert await AuditSealer(database, KEY).seal() == 1


def test_the_numbers_of_advisory_locks_are_in_one_place() -> None:
    package = Path(kapsa.fleet.__file__).parent
    users = [path.name for path in sorted(package.rglob("*.py")) if "1801548659" in path.read_text()]
    assert users == ["advisory_locks.py", "v0001_foundation.py"]
    first_revision = next(package.rglob("v0001_foundation.py")).read_text()
    numbers = ", ".join(map(str, AdvisoryLock.COMMIT_ORDER.key))
    assert first_revision.count("pg_advisory_xact_lock(") == 1
    assert f"pg_advisory_xact_lock({numbers})" in first_revision


async def test_a_whole_chain_has_no_findings(database: Database) -> None:
    await sealed_chain(database)
    await record(database, 7)
    report = await verify_chain(database, KEY)
    assert (report.links, report.unsealed, report.erased, report.findings) == (6, 1, 0, ())


async def test_a_verification_may_take_longer_than_the_limit_of_a_statement(database: Database) -> None:
    await sealed_chain(database)
    impatient = Database(database.url, answer_limit=0.5)
    try:
        async with database.transaction() as connection:
            await connection.execute(text("LOCK TABLE fleet.audit_entry IN ACCESS EXCLUSIVE MODE"))
            verification = asyncio.create_task(verify_chain(impatient, KEY))
            await asyncio.sleep(1)
            assert not verification.done()
        assert (await verification).links == 6
    finally:
        await impatient.close()


async def test_an_empty_trail_is_whole(database: Database) -> None:
    assert await AuditSealer(database, KEY).seal() == 0
    assert await verify_chain(database, KEY) == AuditReport(0, 0, 0, f"0:{bytes(32).hex()}", ())


async def test_an_entry_exists_only_if_its_write_commits(database: Database) -> None:
    async def fail() -> None:
        async with database.transaction() as connection:
            await TRAIL.record(connection, entry(1))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        await fail()
    assert await AuditSealer(database, KEY).seal() == 0


async def test_entries_are_chained_in_the_order_of_commits_not_of_inserts(database: Database) -> None:
    async with database.transaction() as late:
        await TRAIL.record(late, entry(1))
        await record(database, 2)
    assert await AuditSealer(database, KEY).seal() == 2
    assert await chained_objects(database) == ["id-2", "id-1"]


async def test_an_entry_that_commits_after_a_sealing_is_not_lost(database: Database) -> None:
    sealer = AuditSealer(database, KEY)
    async with database.transaction() as late:
        await TRAIL.record(late, entry(1))
        await record(database, 2)
        assert await sealer.seal() == 1
    assert await sealer.seal() == 1
    assert await chained_objects(database) == ["id-2", "id-1"]
    assert await problems(database) == []


async def test_a_row_lock_orders_entries_as_it_orders_the_writes(database: Database) -> None:
    """The second transaction records first, but waits for the first to write the same row."""
    await execute(database, "INSERT INTO fleet.outbox (kind, payload) VALUES ('x', '{}')")
    async with database.transaction() as first:
        await first.execute(text("UPDATE fleet.outbox SET attempts = 1"))

        async def second() -> None:
            async with database.transaction() as connection:
                await TRAIL.record(connection, entry(2))
                await connection.execute(text("UPDATE fleet.outbox SET attempts = 2"))

        waiting = asyncio.create_task(second())
        waiters = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        async with database.engine.connect() as watcher:
            while not (await watcher.execute(waiters)).scalar_one():
                await watcher.rollback()
        await TRAIL.record(first, entry(1))
    await waiting
    await AuditSealer(database, KEY).seal()
    assert await chained_objects(database) == ["id-1", "id-2"]


async def test_concurrent_writers_and_sealers_make_one_chain_in_commit_order(
    database: Database, replica: Callable[[], Database]
) -> None:
    replicas = [database, replica(), replica()]
    sealers = [AuditSealer(each, KEY) for each in replicas]
    committed: list[str] = []
    done = asyncio.Event()

    async def write(mine: Database, base: int) -> None:
        for number in range(base, base + 15):
            await record(mine, number)
            committed.append(f"id-{number}")

    async def seal(sealer: AuditSealer) -> None:
        while not done.is_set():
            await sealer.seal()
            await asyncio.sleep(0)

    sealing = [asyncio.create_task(seal(each)) for each in sealers]
    await asyncio.gather(*(write(each, 100 * n) for n, each in enumerate(replicas * 2)))
    done.set()
    await asyncio.gather(*sealing)
    await sealers[0].seal()
    chained = await chained_objects(database)
    assert sorted(chained) == sorted(committed)
    for base in range(0, 600, 100):  # each writer's own entries, which commit one after the other
        mine = [each for each in chained if base <= int(each[3:]) < base + 100]
        assert mine == [f"id-{number}" for number in range(base, base + 15)]
    assert await problems(database) == []


TAMPERING = [
    ("UPDATE fleet.audit_entry SET action = 'nothing' WHERE id = 3", "entry 3, or its link 3: changed"),
    ("UPDATE fleet.audit_entry SET object_id = 'id-9' WHERE id = 3", "entry 3, or its link 3: changed"),
    ("UPDATE fleet.audit_entry SET recorded_at = recorded_at + interval '1 us' WHERE id = 3",
     "entry 3, or its link 3: changed"),
    ("UPDATE fleet.audit_content SET actor = 'eve' WHERE entry_id = 3", "actor or payload of entry 3: changed"),
    ("UPDATE fleet.audit_content SET payload = '{}' WHERE entry_id = 3", "actor or payload of entry 3: changed"),
    ("DELETE FROM fleet.audit_entry WHERE id = 3", "entry 3: missing"),
    (
        "DELETE FROM fleet.audit_content WHERE entry_id = 3",
        "actor and payload of entry 3: missing, and no erasure was recorded",
    ),
    ("DELETE FROM fleet.audit_seal WHERE sequence IN (3, 4)", "links 3 to 4 of the chain: missing"),
    ("DELETE FROM fleet.audit_seal WHERE sequence = 1", "link 1 of the chain: missing"),
    ("DELETE FROM fleet.audit_seal WHERE sequence > 4", "links 5 to 6 at the end of the chain: missing"),
    ("DELETE FROM fleet.audit_head", "the record of the last link: missing"),
    ("UPDATE fleet.audit_seal SET chain_hash = sha256('x') WHERE sequence = 3", "entry 3, or its link 3: changed"),
    ("UPDATE fleet.audit_seal SET entry_id = -entry_id WHERE sequence = 3", "entry -3: missing"),
    ("UPDATE fleet.audit_entry SET content_hash = sha256('x') WHERE id = 3", "entry 3, or its link 3: changed"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "problem"), TAMPERING)
async def test_tampering_is_detected_and_located(database: Database, statement: str, problem: str) -> None:
    await sealed_chain(database)
    await execute(database, statement)
    assert problem in await problems(database)


async def test_an_inserted_entry_is_detected(database: Database) -> None:
    await sealed_chain(database)
    await execute(
        database,
        """ALTER TABLE fleet.audit_entry DISABLE TRIGGER order_audit_entry;
           INSERT INTO fleet.audit_entry (action, object_kind, object_id, content_hash, signature)
           VALUES ('cluster.delete', 'cluster', 'id-1', '', '1');
           INSERT INTO fleet.audit_entry (action, object_kind, object_id, content_hash, signature, commit_order)
           VALUES ('cluster.delete', 'cluster', 'id-1', '', '2', -1)""",
    )
    inserted = [f"entry {number}: inserted after its place in the chain was sealed" for number in (7, 8)]
    assert (await problems(database))[:2] == inserted


async def test_a_forged_entry_that_the_sealer_has_sealed_is_detected(database: Database) -> None:
    await sealed_chain(database)
    payload, salt = '{"name":"prod-1"}', bytes(16)
    forged = {
        "salt": salt,
        "payload": payload,
        "hash": content_hash(salt, "ada", payload),
        "signature": bytes(32),
    }
    async with database.transaction() as connection:
        await connection.execute(
            text("""WITH e AS (
                      INSERT INTO fleet.audit_entry (action, object_kind, object_id, content_hash, signature)
                      VALUES ('cluster.delete', 'cluster', 'id-1', :hash, :signature) RETURNING id)
                    INSERT INTO fleet.audit_content SELECT id, 'ada', :payload, :salt FROM e"""),
            forged,
        )
    assert await AuditSealer(database, KEY).seal() == 1
    assert await problems(database) == ["entry 7: inserted, no manager has recorded it"]


async def test_the_copy_of_an_entry_is_detected(database: Database) -> None:
    await sealed_chain(database)
    await execute(
        database,
        """WITH e AS (
             INSERT INTO fleet.audit_entry (action, object_kind, object_id, content_hash, signature)
             SELECT action, object_kind, object_id, content_hash, signature FROM fleet.audit_entry WHERE id = 3
             RETURNING id)
           INSERT INTO fleet.audit_content
           SELECT e.id, c.actor, c.payload, c.salt FROM e, fleet.audit_content c WHERE c.entry_id = 3""",
    )
    await AuditSealer(database, KEY).seal()
    assert await problems(database) == ["entry 7: inserted, it is the copy of another one"]


async def test_entries_that_changed_places_are_detected(database: Database) -> None:
    await sealed_chain(database)
    await execute(
        database,
        """UPDATE fleet.audit_seal SET commit_order = -commit_order, entry_id = -entry_id WHERE sequence IN (3, 4);
           UPDATE fleet.audit_seal SET commit_order = 7 - sequence, entry_id = 7 - sequence
           WHERE sequence IN (3, 4)""",
    )
    assert await problems(database) == [
        "entry 4, or its link 3: changed",
        "entry 3, or its link 4: changed",
    ]


async def test_only_the_changed_entry_is_reported(database: Database) -> None:
    await sealed_chain(database)
    await execute(database, "UPDATE fleet.audit_entry SET action = 'nothing' WHERE id = 3")
    assert await problems(database) == ["entry 3, or its link 3: changed"]


async def test_a_chain_that_was_rebuilt_without_the_key_is_detected(database: Database) -> None:
    await sealed_chain(database)
    await execute(database, "DELETE FROM fleet.audit_entry WHERE id = 3")
    await execute(database, "TRUNCATE fleet.audit_seal, fleet.audit_head")
    await AuditSealer(database, bytes(32)).seal()
    assert len(await problems(database)) == 5


async def test_a_chain_that_was_cut_has_a_gap_after_it_was_continued(database: Database) -> None:
    await sealed_chain(database)
    await execute(database, "DELETE FROM fleet.audit_seal WHERE sequence > 4")
    await execute(database, "DELETE FROM fleet.audit_entry WHERE id > 4")
    await record(database, 7, 8, 9)
    assert await AuditSealer(database, KEY).seal() == 3
    assert await problems(database) == ["links 5 to 6 of the chain: missing"]


async def test_a_chain_that_was_cut_with_its_head_is_detected_by_an_anchor(database: Database) -> None:
    await sealed_chain(database)
    anchor = (await verify_chain(database, KEY)).anchor
    await execute(database, "DELETE FROM fleet.audit_seal WHERE sequence > 4")
    await execute(database, "DELETE FROM fleet.audit_entry WHERE id > 4")
    await execute(
        database,
        """UPDATE fleet.audit_head SET sequence = 4,
           chain_hash = (SELECT chain_hash FROM fleet.audit_seal WHERE sequence = 4)""",
    )
    await record(database, 7, 8, 9)
    await AuditSealer(database, KEY).seal()
    assert (await verify_chain(database, KEY)).findings == ()
    report = await verify_chain(database, KEY, anchor=anchor)
    assert [finding.problem for finding in report.findings] == [f"anchor {anchor}: not a link of this chain"]


@pytest.mark.parametrize("anchor", ["x", "3", "99999999999999999999:00", "-1:00", "²:00"])
async def test_an_anchor_of_no_chain_is_reported(database: Database, anchor: str) -> None:
    await sealed_chain(database)
    assert len((await verify_chain(database, KEY, anchor=anchor)).findings) == 1


async def test_erasure_removes_people_and_names_and_keeps_the_chain_whole(database: Database) -> None:
    await sealed_chain(database)
    anchor = (await verify_chain(database, KEY)).anchor
    async with database.transaction() as connection:
        assert await TRAIL.erase(connection, "cluster", "id-3") == 1
    report = await verify_chain(database, KEY, anchor=anchor)
    assert (report.erased, report.findings) == (1, ())
    async with database.transaction() as connection:
        rest = await connection.execute(text("SELECT e::text FROM fleet.audit_entry e WHERE id = 3"))
        assert "prod-3" not in rest.scalar_one()


async def test_equal_contents_have_different_hashes(database: Database) -> None:
    """Otherwise, what was erased could be guessed and confirmed."""
    await record(database, 1, 1)
    async with database.transaction() as connection:
        hashes = await connection.execute(text("SELECT DISTINCT content_hash FROM fleet.audit_entry"))
        assert len(hashes.all()) == 2


async def test_the_key_of_the_chain_is_made_once_and_sealed(
    database: Database, replica: Callable[[], Database]
) -> None:
    vault = LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "test")))
    keys = await asyncio.gather(*(chain_key(each, vault) for each in (database, replica(), replica())))
    assert len(set(keys)) == 1
    async with database.transaction() as connection:
        stored = (await connection.execute(text("SELECT value FROM fleet.internal_secret"))).scalar_one()
    assert keys[0] not in bytes(stored)


async def test_more_entries_than_a_batch_are_sealed_and_verified(database: Database) -> None:
    hashes = [str(number).encode() for number in range(2345)]
    rows = [{"hash": each, "signature": entry_signature(KEY, "a", "b", "1", each)} for each in hashes]
    async with database.transaction() as connection:
        await connection.execute(
            text("""INSERT INTO fleet.audit_entry (action, object_kind, object_id, content_hash, signature)
                    VALUES ('a', 'b', '1', :hash, :signature)"""),
            rows,
        )
        await TRAIL.erase(connection, "b", "1")
    assert await AuditSealer(database, KEY).seal() == 2346
    report = await verify_chain(database, KEY)
    assert (report.links, report.erased, report.findings) == (2346, 2345, ())

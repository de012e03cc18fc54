"""The audit log as admins read it: pages, criteria, and who may read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.errors import InvalidInput, NotAllowed
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.infrastructure.audit.reader import PostgresAuditReader
from kapsa.fleet.infrastructure.audit.sealer import AuditSealer
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.audit import AuditFilter, AuditLog
from kapsa.fleet.orchestrator.ports.audit import AuditEntry

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def audit_log(database: Database) -> AuditLog:
    for number in range(1, 11):
        database.set_clock(START + timedelta(minutes=number))
        async with database.transaction() as connection:
            await PostgresAuditTrail(bytes(32)).record(
                connection,
                AuditEntry(
                    actor="ada" if number % 2 else "bob",
                    action="cluster.register" if number < 6 else "cluster.delete",
                    object_kind="cluster",
                    object_id=f"id-{number}",
                    payload={"number": number},
                ),
            )
    return AuditLog(PostgresAuditReader(database))


async def test_pages_are_newest_first_and_cover_every_entry_once(audit_log: AuditLog) -> None:
    seen, cursor = [], ""
    while True:
        page = await audit_log.page(ADMIN, limit=3, cursor=cursor)
        seen += [record.object_id for record in page.items]
        if not (cursor := page.next_cursor):
            break
    assert seen == [f"id-{number}" for number in range(10, 0, -1)]


async def test_a_last_page_that_is_full_has_no_cursor(audit_log: AuditLog) -> None:
    assert (await audit_log.page(ADMIN, limit=10)).next_cursor == ""


@pytest.mark.parametrize(
    ("criteria", "numbers"),
    [
        ({"actor": "bob"}, [10, 8, 6, 4, 2]),
        ({"action": "cluster.register"}, [5, 4, 3, 2, 1]),
        ({"object_kind": "cluster", "object_id": "id-4"}, [4]),
        ({"object_kind": "operator"}, []),
        ({"since": START + timedelta(minutes=8)}, [10, 9, 8]),
        ({"until": START + timedelta(minutes=3)}, [2, 1]),
        ({"actor": "ada", "action": "cluster.delete"}, [9, 7]),
    ],
)
async def test_criteria_select_entries(
    audit_log: AuditLog, criteria: dict[str, Any], numbers: list[int]
) -> None:
    page = await audit_log.page(ADMIN, AuditFilter(**criteria))
    assert [record.payload["number"] for record in page.items if record.payload] == numbers


async def test_a_record_shows_its_link_once_it_is_sealed(audit_log: AuditLog, database: Database) -> None:
    assert (await audit_log.page(ADMIN, limit=1)).items[0].link is None
    await AuditSealer(database, bytes(32)).seal()
    assert (await audit_log.page(ADMIN, limit=1)).items[0].link == 10


async def test_an_erased_record_stays_in_the_list_without_its_content(
    audit_log: AuditLog, database: Database
) -> None:
    async with database.transaction() as connection:
        await PostgresAuditTrail(bytes(32)).erase(connection, "cluster", "id-10")
    erasure, record = (await audit_log.page(ADMIN, limit=2)).items
    assert (record.object_id, record.actor, record.payload) == ("id-10", None, None)
    assert (erasure.object_id, erasure.action) == ("id-10", "audit.erase")


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.VIEWER, Role.ENVIRONMENT_OWNER])
async def test_only_an_admin_may_read_it(audit_log: AuditLog, role: Role) -> None:
    with pytest.raises(NotAllowed, match="only an admin"):
        await audit_log.page(Principal("eve", frozenset({role})))


@pytest.mark.parametrize("cursor", ["x", "-1", "1 OR 1=1", "9" * 30, "²"])
async def test_an_invalid_cursor_is_rejected(audit_log: AuditLog, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="not a cursor"):
        await audit_log.page(ADMIN, cursor=cursor)


@pytest.mark.parametrize("limit", [0, 501])
async def test_an_invalid_limit_is_rejected(audit_log: AuditLog, limit: int) -> None:
    with pytest.raises(InvalidInput, match="between 1 and 500"):
        await audit_log.page(ADMIN, limit=limit)

"""Idempotency keys: repetition, concurrency, crashes, and other callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.requests.idempotency import PostgresIdempotencyKeys, mark_current_claim
from kapsa.fleet.orchestrator.ports.requests.idempotency import (
    ClaimState,
    KeyClaim,
    RecordedResponse,
    current_claim,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
RESPONSE = RecordedResponse(201, {"location": "/api/v1/deployments/7"}, b'{"id": "7"}')


async def apply(database: Database, claim: KeyClaim) -> None:
    """Do what a write does: mark the claim in its transaction."""
    marker = current_claim.set(claim)
    try:
        async with database.transaction() as connection:
            await mark_current_claim(connection)
    finally:
        current_claim.reset(marker)


async def test_a_repeated_request_gets_the_recorded_response(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    first = await keys.claim("ada", "k1", b"request")
    assert first.state is ClaimState.FRESH
    await keys.finish(first, RESPONSE)
    again = await keys.claim("ada", "k1", b"request")
    assert (again.state, again.response) == (ClaimState.REPLAY, RESPONSE)


async def test_a_key_that_was_used_for_another_request_is_a_mismatch(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    await keys.finish(await keys.claim("ada", "k1", b"request"), RESPONSE)
    assert (await keys.claim("ada", "k1", b"another")).state is ClaimState.MISMATCH


async def test_callers_do_not_share_keys(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    await keys.finish(await keys.claim("ada", "k1", b"request"), RESPONSE)
    assert (await keys.claim("bob", "k1", b"request")).state is ClaimState.FRESH


async def test_of_many_simultaneous_requests_exactly_one_runs(
    database: Database, replica: Callable[[], Database]
) -> None:
    replicas = [PostgresIdempotencyKeys(each) for each in (database, replica(), replica())]
    claims = await asyncio.gather(*(keys.claim("ada", "k1", b"r") for keys in replicas for _ in range(5)))
    states = [claim.state for claim in claims]
    assert states.count(ClaimState.FRESH) == 1
    assert states.count(ClaimState.IN_PROGRESS) == 14
    assert all(1 <= c.retry_after <= 60 for c in claims if c.state is ClaimState.IN_PROGRESS)


async def test_a_released_key_can_be_used_at_once(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    await keys.release(await keys.claim("ada", "k1", b"request"))
    assert (await keys.claim("ada", "k1", b"corrected")).state is ClaimState.FRESH


async def test_a_request_that_died_without_effect_runs_again_after_its_claim(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    database.set_clock(START)
    await keys.claim("ada", "k1", b"request")
    database.set_clock(START + timedelta(seconds=61))
    assert (await keys.claim("ada", "k1", b"request")).state is ClaimState.FRESH


async def test_a_request_that_died_after_its_effect_is_never_repeated(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    database.set_clock(START)
    claim = await keys.claim("ada", "k1", b"request")
    await apply(database, claim)
    await keys.release(claim)  # a handler that fails after the commit cannot give the key back
    database.set_clock(START + timedelta(minutes=10))
    assert (await keys.claim("ada", "k1", b"request")).state is ClaimState.LOST


async def test_a_request_that_outlived_its_claim_cannot_take_effect(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    database.set_clock(START)
    zombie = await keys.claim("ada", "k1", b"request")
    database.set_clock(START + timedelta(seconds=61))
    second = await keys.claim("ada", "k1", b"request")
    with pytest.raises(StateConflict, match="another request with the same Idempotency-Key is running"):
        await apply(database, zombie)
    await apply(database, second)
    await apply(database, second)  # several writes of one request
    await keys.finish(zombie, RecordedResponse(500, {}, b""))
    await keys.finish(second, RESPONSE)
    assert (await keys.claim("ada", "k1", b"request")).response == RESPONSE


async def test_a_key_is_forgotten_after_a_day(database: Database) -> None:
    keys = PostgresIdempotencyKeys(database)
    database.set_clock(START)
    await keys.finish(await keys.claim("ada", "k1", b"request"), RESPONSE)
    database.set_clock(START + timedelta(days=1, seconds=1))
    assert (await keys.claim("ada", "k1", b"another")).state is ClaimState.FRESH


async def test_a_write_outside_a_request_marks_nothing(database: Database) -> None:
    async with database.transaction() as connection:
        await mark_current_claim(connection)

"""A new list that is requested of an informer at the worst moments: it is always made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kapsa.devcluster.faults import Answer, Cut, Drop, FaultPlan, FaultRule
from kapsa.runtime.testing import Harness
from tests.runtime.cache.informer_fixture import InformerFixture, Moment

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def fixture(harness: Harness) -> AsyncIterator[InformerFixture]:
    made = InformerFixture(harness)
    await made.make("a")
    yield made
    await made.informer.stop()


def refresh_at(fixture: InformerFixture, moment: Moment) -> asyncio.Future[float]:
    """Request a new list in the turn in which the next response has come to this moment. Return the time of the request."""
    requested: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def refresh(delivered: Moment) -> None:
        if delivered == moment and not requested.done():
            requested.set_result(fixture.harness.clock.monotonic())
            fixture.informer.refresh(requested.result())

    fixture.transport.on_delivery = refresh
    return requested


async def assert_listed(fixture: InformerFixture, requested: asyncio.Future[float]) -> None:
    await fixture.wait(120)
    assert requested.done()
    assert fixture.informer.listed_at >= requested.result()
    await fixture.make("z")
    await fixture.wait()
    assert "z" in fixture.names, "it watches again"


async def test_a_new_list_requested_as_a_list_in_pages_ends_is_made(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Answer(code=422, reason="Invalid"), verb="watch", resource="configmaps"))
    requested = refresh_at(fixture, "list")
    await fixture.start()
    await assert_listed(fixture, requested)
    assert len(fixture.transport.lists) == 2


async def test_a_new_list_requested_as_an_event_arrives_is_made_although_the_first_attempt_fails(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.start()
    await fixture.wait()
    requested = refresh_at(fixture, "part")
    rule = faults.add(FaultRule(action=Drop(), verb="watch", resource="configmaps", client="informer"))
    await fixture.make("b")
    await assert_listed(fixture, requested)
    assert rule.fired == 1
    assert fixture.informer.relists == 1


async def test_a_new_list_requested_as_a_stream_ends_is_made(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.start()
    await fixture.wait(30)
    requested = refresh_at(fixture, "end")
    faults.order(Cut(), client="informer")
    await assert_listed(fixture, requested)
    assert fixture.informer.relists == 1


async def test_a_new_list_requested_while_one_is_under_way_that_fails_is_made(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.start()
    await fixture.wait(30)
    first = fixture.harness.clock.monotonic()
    rule = faults.add(
        FaultRule(action=Drop(), verb="watch", resource="configmaps", client="informer", times=3)
    )
    fixture.informer.refresh(first)
    await fixture.wait(120)
    assert rule.fired == 3
    assert fixture.informer.listed_at >= first

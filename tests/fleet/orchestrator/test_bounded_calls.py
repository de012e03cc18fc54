"""Calls side by side, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.fleet.orchestrator.bounded_calls import bounded


async def test_results_come_in_the_order_of_the_calls_and_few_are_under_way_at_a_time() -> None:
    under_way = most = 0

    async def call(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await bounded(3, (call(number) for number in range(20))) == list(range(20))
    assert most == 3


async def test_an_error_ends_the_other_calls_before_it_is_raised() -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def broken() -> None:
        await asyncio.sleep(0)
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await bounded(2, [endless(), broken()])
    assert ended == ["cancelled"]
    assert asyncio.all_tasks() == {asyncio.current_task()}

"""A wait for a real system to reach a state, with a timeout that reports the last state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


async def eventually(
    read: Callable[[], Awaitable[T]], condition: Callable[[T], bool], expected: str, *, seconds: float = 90
) -> T:
    """Read the state until the condition holds. Fail the test with the last state after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition(state := await read()):
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"expected {expected} within {seconds:g} s; last seen: {state}")
        await asyncio.sleep(0.05)
    return state

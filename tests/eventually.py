"""Waiting for a real system to come to a state, with a limit and with what was seen last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


async def eventually(
    look: Callable[[], Awaitable[T]], right: Callable[[T], bool], what: str, *, seconds: float = 40
) -> T:
    """Look again and again until it is right; fail with what was seen last."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not right(seen := await look()):
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"{what} did not come about in {seconds:g} s; last seen: {seen}")
        await asyncio.sleep(0.05)
    return seen

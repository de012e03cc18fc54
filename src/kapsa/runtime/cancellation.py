"""Telling our own cancellation from that of something which the code of others awaited."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["await_user_code"]

T = TypeVar("T")


async def await_user_code(work: Awaitable[T]) -> T:
    """What a method of a controller or webhook returns.

    A cancellation that nobody asked this task for comes from something that the method awaited and somebody else
    cancelled. It is a failure like any other; left as it is, it would end the worker, or the caller's connection.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    try:
        return await work
    except asyncio.CancelledError as error:
        if task.cancelling() > asked_before:
            raise
        raise RuntimeError("what it awaited was cancelled, and not by the operator") from error

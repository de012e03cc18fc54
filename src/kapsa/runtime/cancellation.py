"""Cancellation that a user's code caused, distinguished from cancellation by the runtime."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["await_user_code"]

T = TypeVar("T")


async def await_user_code(work: Awaitable[T]) -> T:
    """Return the result of a method of a controller, a webhook, an event source or a provider of clusters.

    A `CancelledError` although this task was not cancelled comes from something that the method awaited. It
    becomes a `RuntimeError`: passed on, it would end the worker, the caller's connection or the source for good.
    """
    task = asyncio.current_task()
    assert task is not None
    requests_before = task.cancelling()
    try:
        return await work
    except asyncio.CancelledError as error:
        if task.cancelling() > requests_before:
            raise
        raise RuntimeError("something it awaited was cancelled, but not by the operator") from error

"""Calls side by side, a few at a time, of which none outlives the caller."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["bounded"]

Result = TypeVar("Result")


async def bounded(most: int, calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of calls in their order, with at most `most` under way.

    The first error is raised. The calls that are still under way by then are cancelled and waited for.
    """
    limit = asyncio.Semaphore(most)

    async def run(call: Coroutine[Any, Any, Result]) -> Result:
        try:
            await limit.acquire()
            result = await call
            limit.release()  # not after an error, so that no other call begins
            return result
        finally:
            call.close()  # a call that never began warns otherwise

    tasks = [asyncio.create_task(run(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

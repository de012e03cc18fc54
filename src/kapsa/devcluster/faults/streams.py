"""Watches under a fault plan: silenced, cut, duplicated, expired, or held while reads are frozen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from kapsa.devcluster.faults.plan import (
    Action,
    Cut,
    Duplicate,
    Expire,
    FaultPlan,
    OpenWatch,
    RequestTarget,
    Silence,
)

__all__ = ["faulty_stream"]


async def faulty_stream(
    chunks: AsyncIterator[bytes], plan: FaultPlan, target: RequestTarget, expired: bytes
) -> AsyncIterator[bytes]:
    """Yield a watch's lines, with the plan's actions applied to each. `expired` is the line of a 410 error."""
    watch = plan.watch_opened(target)
    lines = _lines(chunks)
    try:
        while True:
            line = await _next_line(lines, watch)
            actions: list[Action] = (
                [watch.order] if watch.order else plan.due_on_event(target) if line else []
            )
            ending = _ending(actions)
            if isinstance(ending, Silence):
                await _forever(watch)
            if isinstance(ending, Expire):
                yield expired
            if ending is not None or line is None:
                return
            for _ in range(1 + sum(isinstance(action, Duplicate) for action in actions)):
                yield line
    finally:
        plan.watch_closed(watch)
        await lines.aclose()


def _ending(actions: list[Action]) -> Action | None:
    """Return the action that ends the stream, if any."""
    return next((action for action in actions if isinstance(action, Silence | Cut | Expire)), None)


async def _forever(watch: OpenWatch) -> None:
    """Wait until the watch is cut or its client disconnects."""
    watch.ordered.clear()
    watch.order = None
    await watch.ordered.wait()


async def _next_line(lines: AsyncGenerator[bytes, None], watch: OpenWatch) -> bytes | None:
    """Return the next line; None at the end of the stream or after an order of the plan."""
    following = asyncio.ensure_future(_advance(lines))
    ordered = asyncio.ensure_future(watch.ordered.wait())
    try:
        await asyncio.wait({following, ordered}, return_when=asyncio.FIRST_COMPLETED)
        if watch.ordered.is_set():
            return None
        await watch.thawed()
        return following.result()
    finally:
        for task in (following, ordered):
            task.cancel()
        # Not `await task`: that would take a cancellation of the caller for one of the task, and swallow it.
        await asyncio.wait({following, ordered})


async def _advance(lines: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(lines, None)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield whole lines from chunks of any size."""
    pending = b""
    try:
        async for chunk in chunks:
            pending += chunk
            *whole, pending = pending.split(b"\n")
            for line in whole:
                yield line + b"\n"
        if pending:
            yield pending
    finally:
        closing = getattr(chunks, "aclose", None)
        if closing is not None:
            await closing()

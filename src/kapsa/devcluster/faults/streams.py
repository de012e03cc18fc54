"""Watches under a fault plan: silenced, cut, doubled, expired, or held back while reads are frozen."""

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
    """A watch's lines one by one, each as the plan lets it through.

    :param expired: the line that says 410.
    """
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
    """The action that ends the stream, if one does."""
    return next((action for action in actions if isinstance(action, Silence | Cut | Expire)), None)


async def _forever(watch: OpenWatch) -> None:
    """Say nothing until the watch is cut, or its client gives up."""
    watch.ordered.clear()
    watch.order = None
    await watch.ordered.wait()


async def _next_line(lines: AsyncGenerator[bytes, None], watch: OpenWatch) -> bytes | None:
    """The next line; None at the end, or when the plan has ordered one."""
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
        # Waiting, not awaiting: that would take a cancellation of our own caller for the task's, and swallow it.
        await asyncio.wait({following, ordered})


async def _advance(lines: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(lines, None)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Whole lines out of chunks that hold several, or parts."""
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

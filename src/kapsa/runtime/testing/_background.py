"""A loop in a thread of its own, for what must live longer than one test's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def background_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Yields a function that runs a coroutine on the loop and waits for its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=110)

    try:
        yield wait
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

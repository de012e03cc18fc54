"""An event loop in a thread, for servers that outlive the loop of a single test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["background_loop"]

T = TypeVar("T")


@contextmanager
def background_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run an event loop in a thread.

    Yields a function that runs a coroutine on it and waits for the result.
    """
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

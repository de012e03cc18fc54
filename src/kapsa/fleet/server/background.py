"""Background tasks: each runs until the manager stops, and a failure neither ends it nor goes unnoticed."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

__all__ = ["SHORT_PAUSE", "BackgroundTask", "BackgroundTasks"]

log = structlog.get_logger(__name__)

_LONGEST_DELAY = 60.0
SHORT_PAUSE = 5.0
"""The longest pause of work on many objects: the failure of one ends its round, and the others wait for the next."""


class BackgroundTask(msgspec.Struct, frozen=True):
    """Work that is repeated."""

    name: str
    work: Callable[[], Awaitable[object]]
    """One round, or all of the work if it never returns. It is started again if it does."""
    every: float = 1.0
    """Seconds between two rounds."""
    longest_pause: float = _LONGEST_DELAY
    """Seconds to which the pause after failures grows, also if rounds are further apart."""
    essential: bool = False
    """True if the manager cannot go on without it: its first failure stops the manager."""
    cancel: bool = False
    """True to cancel it when the manager stops, instead of waiting for the end of the round."""
    on_stop: Callable[[], None] | None = None
    """Called when the manager stops: asks work that never returns to come to its end."""


class BackgroundTasks:
    """The tasks of one manager."""

    def __init__(
        self, tasks: tuple[BackgroundTask, ...], *, count_failure: Callable[[str], object] = lambda _: None
    ) -> None:
        self._tasks = tasks
        self._count_failure = count_failure
        self._running: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when an essential task has failed, with the reason."""

    def start(self) -> None:
        """Start every task."""
        self._running = [asyncio.create_task(self._repeat(task), name=task.name) for task in self._tasks]

    async def stop(self, *, timeout: float = 10.0) -> None:
        """Let each task finish its round, and cancel those that take too long."""
        self._stopping.set()
        if not self._running:
            return
        for task, running in zip(self._tasks, self._running, strict=True):
            if task.on_stop is not None:
                task.on_stop()
            if task.cancel:
                running.cancel()
        _, late = await asyncio.wait(self._running, timeout=timeout)
        for running in late:
            log.warning("background task is cancelled: it did not end in time", task=running.get_name())
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _repeat(self, task: BackgroundTask) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                await task.work()
            except Exception as error:
                failures += 1
                self._count_failure(task.name)
                log.exception("background task failed", task=task.name, failures=failures)
                if task.essential:
                    self._fail(f"{task.name}: {error}")
                    return
                await self._pause(min(task.longest_pause, task.every * 2.0 ** min(failures, 10)))
            else:
                failures = 0
                await self._pause(task.every)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

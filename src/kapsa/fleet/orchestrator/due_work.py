"""Work that is due at intervals: claimed by one of the replicas, and done in parallel within a bound.

A claim moves the next time of an object by one interval in a short transaction, so no two replicas work on it, and one
that dies is made up for an interval later. A replica claims only what it has a free slot for, and again as soon as one
is free: an object that takes long delays no other, and the other replicas get their share.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions

__all__ = ["DueWork"]

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
_IDLE_SECONDS = 1.0
"""The longest time until a free slot looks again for what is due."""


class Claim(Protocol[C_co]):
    """Claims at most as many objects as the limit, by id, without those that are at work here."""

    def __call__(
        self, connection: Connection, *, limit: int, at_work: Sequence[uuid.UUID]
    ) -> Awaitable[Mapping[uuid.UUID, C_co]]: ...


class DueWork(Generic[C]):
    """One kind of work of one replica."""

    def __init__(
        self,
        transactions: Transactions,
        claim: Claim[C],
        next_due: Callable[[Connection], Awaitable[datetime | None]],
        work: Callable[[C], Awaitable[None]],
        *,
        parallel: int,
    ) -> None:
        self._transactions = transactions
        self._claim = claim
        self._next_due = next_due
        self._work = work
        self._parallel = parallel
        self._at_work: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._running = False
        self._stopped = False

    async def run_due(self) -> int:
        """Do what is due, and what becomes due meanwhile. Return how many objects were worked on.

        A failure is raised at once. The others stay at work, and the next call goes on with them.
        """
        done = 0
        self._running = True
        try:
            await self._fill()
            while self._at_work:
                done += await self._ended()
                await self._fill()
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            self._running = False
        return done

    def stop(self) -> None:
        """Claim nothing more: `run_due` returns when what is at work has ended. What no call waits for is cancelled."""
        self._stopped = True
        if not self._running:
            for task in self._at_work.values():
                task.cancel()

    async def next_due(self) -> datetime | None:
        """Return the time at which something is due next, None if nothing ever is."""
        async with self._transactions.transaction() as connection:
            return await self._next_due(connection)

    async def _fill(self) -> None:
        """Claim as much as there are free slots for."""
        free = self._parallel - len(self._at_work)
        if free <= 0 or self._stopped:
            return
        async with self._transactions.transaction() as connection:
            claims = await self._claim(connection, limit=free, at_work=list(self._at_work))
        for key, claim in claims.items():
            self._at_work[key] = asyncio.ensure_future(self._work(claim))

    async def _ended(self) -> int:
        """Wait until something ends, or for a moment. Return how many have ended, or raise the failure of one."""
        ended, _ = await asyncio.wait(
            self._at_work.values(), timeout=_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        self._at_work = {key: task for key, task in self._at_work.items() if task not in ended}
        for failure in [task.exception() for task in ended]:
            if failure is not None:
                raise failure
        return len(ended)

    async def _cancel(self) -> None:
        tasks = list(self._at_work.values())
        self._at_work.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Work that is due at intervals: claimed by one of the replicas, and done in parallel within a bound.

A claim moves the next time of an object by one interval in a short transaction, so no two replicas work on it, and one
that dies is made up for an interval later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions

__all__ = ["DueWork"]

C = TypeVar("C")


class DueWork(Generic[C]):
    """The rounds of one kind of work."""

    def __init__(
        self,
        transactions: Transactions,
        claim: Callable[[Connection], Awaitable[Sequence[C]]],
        next_due: Callable[[Connection], Awaitable[datetime | None]],
        work: Callable[[C], Awaitable[None]],
        *,
        parallel: int,
    ) -> None:
        self._transactions = transactions
        self._claim = claim
        self._next_due = next_due
        self._work = work
        self._slots = asyncio.Semaphore(parallel)

    async def run_due(self) -> int:
        """Do what is due. Return how many objects were worked on."""
        async with self._transactions.transaction() as connection:
            claims = await self._claim(connection)
        outcomes = await asyncio.gather(*map(self._do, claims), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # after all have ended: one failure does not stop the others
        return len(claims)

    async def next_due(self) -> datetime | None:
        """Return the time at which something is due next, None if nothing ever is."""
        async with self._transactions.transaction() as connection:
            return await self._next_due(connection)

    async def _do(self, claim: C) -> None:
        async with self._slots:
            await self._work(claim)

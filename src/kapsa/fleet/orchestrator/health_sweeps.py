"""Health sweeps: every cluster every 30 seconds, shared by all replicas.

A claim moves the next sweep of a cluster by one interval in a short transaction, so no two replicas sweep it, and one
that dies is made up for an interval later. What a sweep finds wrong is in its readings; a cluster that does not answer
leaves none, and its last ones grow old.
"""

import asyncio
from datetime import datetime, timedelta

import structlog

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.health import ClusterHealthSweeper, HealthStore, SweepClaim
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.ports.vault import VaultError

__all__ = ["SWEEP_INTERVAL", "HealthSweeps"]

log = structlog.get_logger()

SWEEP_INTERVAL = timedelta(seconds=30)


class HealthSweeps:
    """The sweeps of all clusters."""

    def __init__(
        self,
        transactions: Transactions,
        store: HealthStore,
        sweeper: ClusterHealthSweeper,
        *,
        interval: timedelta = SWEEP_INTERVAL,
        parallel: int = 10,
        batch: int = 50,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._sweeper = sweeper
        self._interval = interval
        self._slots = asyncio.Semaphore(parallel)
        self._batch = batch

    async def run_due(self) -> int:
        """Sweep the clusters that are due. Return how many were swept."""
        async with self._transactions.transaction() as connection:
            claims = await self._store.claim_sweeps(connection, interval=self._interval, limit=self._batch)
        outcomes = await asyncio.gather(*(self._sweep(claim) for claim in claims), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # after all sweeps have ended: one failure does not stop the others
        return len(claims)

    async def next_due(self) -> datetime | None:
        """Return the time of the next sweep, or None if no cluster was ever swept."""
        async with self._transactions.transaction() as connection:
            return await self._store.next_sweep(connection)

    async def _sweep(self, claim: SweepClaim) -> None:
        async with self._slots:
            try:
                await self._sweeper.sweep(claim.cluster_id)
            except (ClusterUnreachable, ClusterGone, InvalidInput, VaultError) as error:
                log.info("a cluster cannot be swept", cluster=str(claim.cluster_id), error=str(error))
                return
        async with self._transactions.transaction() as connection:
            await self._store.finish_sweep(connection, claim)

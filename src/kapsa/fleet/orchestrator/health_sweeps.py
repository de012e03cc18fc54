"""Health sweeps: every cluster every 30 seconds, shared by all replicas.

What a sweep finds wrong is in its readings; a cluster that does not answer leaves none, and its last ones grow old.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.orchestrator.due_work import DueWork
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.health import ClusterHealthSweeper, HealthStore, SweepClaim
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
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
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._sweeper = sweeper
        self._interval = interval
        self._due = DueWork(transactions, self._claim, store.next_sweep, self._sweep, parallel=parallel)

    async def run_due(self) -> int:
        """Sweep the clusters that are due, and those that become due meanwhile. Return how many were swept."""
        return await self._due.run_due()

    def stop(self) -> None:
        """Begin no further sweep."""
        self._due.stop()

    async def next_due(self) -> datetime | None:
        """Return the time of the next sweep, or None if no cluster was ever swept."""
        return await self._due.next_due()

    async def _claim(
        self, connection: Connection, *, limit: int, at_work: Sequence[uuid.UUID]
    ) -> dict[uuid.UUID, SweepClaim]:
        claims = await self._store.claim_sweeps(
            connection, interval=self._interval, limit=limit, at_work=at_work
        )
        return {each.cluster_id: each for each in claims}

    async def _sweep(self, claim: SweepClaim) -> None:
        try:
            await self._sweeper.sweep(claim.cluster_id)
        except (ClusterUnreachable, ClusterGone, InvalidInput, VaultError) as error:
            log.info("a cluster cannot be swept", cluster=str(claim.cluster_id), error=str(error))
            return
        async with self._transactions.transaction() as connection:
            await self._store.finish_sweep(connection, claim)

"""The engine: claims what is due, and works on as much of it as this replica has slots for."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

import structlog

from kapsa.fleet.orchestrator.ports.leases import HolderClock, elapsed_seconds
from kapsa.fleet.orchestrator.ports.rollouts import RolloutClaim, RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.rollout.conductor import RolloutConductor
from kapsa.fleet.orchestrator.rollout.renewal import LeaseKeeper
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings
from kapsa.fleet.orchestrator.rollout.takeover_watch import TakeoverWatch
from kapsa.fleet.orchestrator.rollout.worker import ClusterWorker

__all__ = ["RolloutEngine"]

log = structlog.get_logger()

IDLE_SECONDS = 1.0
HAND_BACK_SECONDS = 5.0
KEPT_SLOTS = 1
"""Slots that upgrades and plans leave free: a rollback does not wait for them."""


class RolloutEngine:
    """One replica of the rollout engine. Without a worker it plans and decides, and changes no cluster."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        conductor: RolloutConductor,
        worker: ClusterWorker | None,
        settings: EngineSettings,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._conductor = conductor
        self._worker = worker
        self._settings = settings
        holder = HolderClock(monotonic, time_of_day)
        self._keeper = LeaseKeeper(transactions, store, settings.lease, monotonic=holder)
        self._leases = TakeoverWatch(settings.lease, monotonic)
        self._stopping = asyncio.Event()

    async def run_due(self) -> int:
        """Do what is due now, as much as there are slots for. Return how many rows were worked on."""
        claimed_at = self._keeper.moment()
        claims = await self._claim(self._settings.slots)
        async with asyncio.TaskGroup() as group:
            for claim in claims:
                group.create_task(self._guarded(claim, claimed_at))
        return len(claims)

    async def next_due(self) -> datetime | None:
        """Return the time at which something can be done next; None if nothing waits for a time."""
        async with self._transactions.transaction() as connection:
            free = await self._store.next_due(connection)
            now = await self._store.now(connection)
            held = await self._store.held_leases(connection)
        moments = [now + self._leases.remaining(each) for each in held]
        return min([*moments, free] if free is not None else moments, default=None)

    def stop(self) -> None:
        """Claim nothing more, and begin no further step: `serve` returns when those under way have ended."""
        self._stopping.set()

    async def serve(self) -> None:
        """Work until stopped. What a cancellation cuts off is handed back, and another replica takes it up."""
        at_work: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping.is_set():
                await self._fill(at_work)
                at_work = await self._pause(at_work)
            if at_work:
                await asyncio.wait(at_work)
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

    async def _pause(self, at_work: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Wait until work ends, a stop is asked for, or a moment has passed. Return what is still under way."""
        stop = asyncio.create_task(self._stopping.wait())
        try:
            _, pending = await asyncio.wait(
                {*at_work, stop}, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stop.cancel()
        return at_work & pending

    async def _fill(self, at_work: set[asyncio.Task[None]]) -> None:
        free = self._settings.slots - len(at_work)
        if free <= 0:
            return
        claimed_at = self._keeper.moment()
        try:
            claims = await self._claim(free)
        except Exception as error:  # the database is away for a moment
            log.warning("nothing could be claimed", error=str(error))
            return
        at_work.update(asyncio.create_task(self._guarded(claim, claimed_at)) for claim in claims)

    async def _guarded(self, claim: RolloutClaim, claimed_at: float) -> None:
        """Work on a claim; an error leaves it to the next claim, after the lease.

        A cancellation has ended Helm by the time it comes here, so another replica may take over at once.
        """
        try:
            await self._work(claim, claimed_at)
        except asyncio.CancelledError:
            await self._hand_back(claim)
            raise
        except Exception:
            log.exception("work on a claim failed", deploymentId=str(claim.deployment_id))

    async def _hand_back(self, claim: RolloutClaim) -> None:
        try:
            async with asyncio.timeout(HAND_BACK_SECONDS), self._transactions.transaction() as connection:
                await self._store.hand_back(connection, claim)
        except Exception as error:  # the database is away: another replica waits for the lease to lapse
            log.warning(
                "a lease could not be handed back", deploymentId=str(claim.deployment_id), error=str(error)
            )

    async def _claim(self, limit: int) -> list[RolloutClaim]:
        async with self._transactions.transaction() as connection:
            lapsed = self._leases.lapsed(await self._store.held_leases(connection))
            return await self._store.claim(
                connection,
                self._settings.owner,
                self._settings.lease,
                limit=limit,
                kept=KEPT_SLOTS if self._settings.slots > KEPT_SLOTS else 0,
                clusters=self._worker is not None,
                lapsed=lapsed,
            )

    async def _work(self, claim: RolloutClaim, claimed_at: float) -> None:
        async with self._keeper.keep(claim, claimed_at) as guard:
            if claim.cluster_id is None:
                await self._conductor.conduct(claim)
            elif self._worker is not None:
                await self._worker.work(claim, guard, stopping=self._stopping.is_set)

"""Renewal: a lease is prolonged for as long as the work under it lasts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.rollouts import RolloutClaim, RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Transactions

__all__ = ["LeaseKeeper"]

log = structlog.get_logger()


class LeaseKeeper:
    """A maker of guards that are renewed three times in the life of a lease."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        lease: timedelta,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._lease = lease
        self._monotonic = monotonic
        self._sleep = sleep

    def moment(self) -> float:
        """Return the present moment on the monotonic clock: read it before a claim is made."""
        return self._monotonic()

    @asynccontextmanager
    async def keep(self, claim: RolloutClaim, claimed_at: float) -> AsyncIterator[LeaseGuard]:
        """Hold a lease while the block runs. `claimed_at` was read before the claim was made."""
        guard = LeaseGuard(claimed_at + self._seconds, self._monotonic)
        renewal = asyncio.create_task(self._renew(claim, guard))
        try:
            yield guard
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal

    @property
    def _seconds(self) -> float:
        return self._lease.total_seconds()

    async def _renew(self, claim: RolloutClaim, guard: LeaseGuard) -> None:
        while True:
            await self._sleep(self._seconds / 3)
            asked_at = self._monotonic()
            try:
                async with self._transactions.transaction() as connection:
                    held = await self._store.renew(connection, claim, self._lease)
            except (
                Exception
            ) as error:  # a database that is away for a moment: the guard's deadline still holds
                log.warning(
                    "a lease could not be renewed", deploymentId=str(claim.deployment_id), error=str(error)
                )
                continue
            if not held:
                guard.revoke()
                return
            guard.extend(asked_at + self._seconds)

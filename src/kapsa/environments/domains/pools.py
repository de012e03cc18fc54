"""Hosts: every environment gets one from a DomainPool, and no two ever hold the same.

A host is taken by a write that the server refuses if the pool has changed since it was read, and given back if another pool
gave it out meanwhile. Whoever holds a host keeps it until its environment goes, whatever the pools say later about new ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from kapsa.adapters.errors import ExternalError, ExternalFailure
from kapsa.environments.domains.choice import (
    BUILT_IN,
    Choice,
    HostRequest,
    allocations_of,
    built_in_pool,
    choose,
    domain_counts,
    giving_pools,
    kept_choice,
)
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.ports import HostGrant
from kapsa.environments.resources import Allocation, DomainPool, Environment, IssuerReference, Project
from kapsa.environments.settings import Settings
from kapsa.runtime import AlreadyExists, Conflict, Context, to_wire
from kapsa.runtime import NotFound as ObjectNotFound

__all__ = ["DomainPools"]

_ATTEMPTS = 20


class DomainPools:
    """Gives out hosts of all pools. One for each operator."""

    def __init__(
        self,
        settings: Settings,
        *,
        metrics: EnvironmentMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics or EnvironmentMetrics()
        self._rng = rng or random.Random()  # noqa: S311 - spreads hosts over domains
        # The server decides; the lock only spares this process's environments from refusing each other.
        self._lock = asyncio.Lock()

    async def allocate(
        self, ctx: Context[Environment], environment: Environment, project: Project
    ) -> HostGrant:
        """The host of this environment: the same one every time.

        :raises ExternalError: it is taken, reserved or under no domain of ours, or there is no such pool.
        """
        request = HostRequest.of(environment, project)
        kept = kept_choice(ctx.list(DomainPool, namespace=""), request)
        if kept is not None:
            return self._grant(kept)
        try:
            async with self._lock:
                choice = await self._take(ctx, request)
        except ExternalError:
            self._metrics.domain_allocations.labels("refused").inc()
            raise
        await self.release(ctx, request.uid, keep=choice.host)
        return self._grant(choice)

    async def release(self, ctx: Context[Environment], uid: str, *, keep: str = "") -> None:
        """Give back whatever the environment of this UID holds, but for the host to keep."""
        cached = ctx.list(DomainPool, namespace="")
        # At the end the server is asked: the cache may not know of a write whose answer was lost.
        if not ctx.resource.metadata.deleting and not any(
            allocations_of(pool, uid, but=keep) for pool in cached
        ):
            return
        async with self._lock:
            await self._give_back(ctx, uid, keep=keep)

    async def _give_back(self, ctx: Context[Environment], uid: str, *, keep: str = "") -> None:
        for _ in range(_ATTEMPTS):
            holding = [pool for pool in await self._live(ctx) if allocations_of(pool, uid, but=keep)]
            if not holding:
                return
            for pool in holding:
                gone = allocations_of(pool, uid, but=keep)
                kept = [each for each in pool.status.allocations if each not in gone]
                await self._write(ctx, pool, kept)
        raise ExternalFailure(
            f"hosts of {uid} could not be given back: the pools kept changing", reason="PoolBusy"
        )

    async def _take(self, ctx: Context[Environment], request: HostRequest) -> Choice:
        for _ in range(_ATTEMPTS):
            pools = await self._all(ctx)
            kept = kept_choice(pools, request)
            if kept is not None:
                return kept
            choice = choose(pools, request, self._rng)
            taken = Allocation(
                host=choice.host,
                project=request.project,
                environment=request.environment,
                uid=request.uid,
            )
            allocations = [*choice.pool.status.allocations, taken]
            if not await self._write(ctx, choice.pool, allocations, last_domain=choice.domain):
                continue
            if await self._is_held_alone(ctx, choice.host, request.uid):
                self._metrics.domain_allocations.labels("allocated").inc()
                return choice
            await self._give_back(ctx, request.uid)
        raise ExternalFailure("no host could be taken: the pools kept changing", reason="PoolBusy")

    async def _is_held_alone(self, ctx: Context[Environment], host: str, uid: str) -> bool:
        """Whether no other pool gave it out meanwhile: one with the same domain can come between a look and a write."""
        pools = await self._live(ctx)
        return not any(
            each.host == host and each.uid != uid for pool in pools for each in pool.status.allocations
        )

    async def _write(
        self,
        ctx: Context[Environment],
        pool: DomainPool,
        allocations: list[Allocation],
        *,
        last_domain: str | None = None,
    ) -> bool:
        """Write who holds what, if nobody has written to the pool since it was read. False: look again."""
        status: dict[str, Any] = {
            "allocations": to_wire(allocations),
            "allocated": len(allocations),
            "domains": to_wire(domain_counts(pool, allocations)),
        }
        if last_domain is not None:
            status["lastDomain"] = last_domain
        version = {"resourceVersion": pool.metadata.resource_version, "uid": pool.metadata.uid}
        try:
            await ctx.patch(
                DomainPool,
                pool.name,
                {"metadata": version, "status": status},
                namespace="",
                subresource="status",
            )
        except (Conflict, ObjectNotFound):
            return False
        return True

    async def _all(self, ctx: Context[Environment]) -> Sequence[DomainPool]:
        """The pools as the server has them, with the built-in one if there is no other."""
        for _ in range(_ATTEMPTS):
            pools = await self._live(ctx)
            domain = self._settings.preview_domain
            built_in = next((pool for pool in pools if pool.name == BUILT_IN), None)
            if any(pool.name != BUILT_IN for pool in giving_pools(pools)):
                return pools
            if built_in is not None and (
                built_in.metadata.deleting or built_in.spec.base_domains == (domain,)
            ):
                return pools
            await self._make_built_in(ctx, domain, exists=built_in is not None)
        raise ExternalFailure(f"DomainPool {BUILT_IN} could not be made", reason="PoolBusy")

    async def _make_built_in(self, ctx: Context[Environment], domain: str, *, exists: bool) -> None:
        if exists:
            await ctx.patch(DomainPool, BUILT_IN, {"spec": {"baseDomains": [domain]}}, namespace="")
            return
        try:
            await ctx.create(built_in_pool(domain), owner=False)
        except AlreadyExists:
            return  # somebody was faster; the next look shows it

    async def _live(self, ctx: Context[Environment]) -> Sequence[DomainPool]:
        return (await ctx.client.list(DomainPool)).items

    def _grant(self, choice: Choice) -> HostGrant:
        spec = choice.pool.spec
        issuer = spec.cert_manager.issuer_ref if spec.cert_manager is not None else None
        if issuer is None and self._settings.cluster_issuer:
            issuer = IssuerReference(name=self._settings.cluster_issuer)
        # A wildcard certificate covers one label and no more.
        covered = "." not in choice.host.removesuffix(f".{choice.domain}")
        return HostGrant(
            host=choice.host,
            issuer=(issuer.kind, issuer.name) if issuer is not None else None,
            wildcard_secret=spec.wildcard_secret_name if covered else None,
        )

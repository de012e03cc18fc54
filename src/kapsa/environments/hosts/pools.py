"""The allocation of hosts: each environment gets one from a DomainPool, and no two hold the same.

A host is allocated by a write that the API server rejects if the pool has changed since it was read, and
released if another pool allocated it at the same time. An environment keeps its host until it is deleted,
even if the pools change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from kapsa.adapters.errors import ExternalError, ExternalFailure
from kapsa.environments.hosts.choice import (
    BUILT_IN,
    Choice,
    HostRequest,
    active_pools,
    allocations_of,
    built_in_pool,
    choose,
    current_choice,
    domain_counts,
    is_pooled,
)
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.ports import HostGrant
from kapsa.environments.resources import (
    Allocation,
    DomainPool,
    Environment,
    IssuerReference,
    Project,
    TeamNamespace,
)
from kapsa.environments.settings import Settings
from kapsa.runtime import AlreadyExists, Conflict, Context, to_wire
from kapsa.runtime import NotFound as ObjectNotFound

__all__ = ["DomainPools"]

_ATTEMPTS = 20


class DomainPools:
    """The allocations of hosts of all pools. There is one per operator."""

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
        # The API server decides; the lock only spares conflicts between environments of this process.
        self._lock = asyncio.Lock()

    async def allocate(
        self, ctx: Context[Environment], environment: Environment, project: Project, team: TeamNamespace
    ) -> HostGrant:
        """Return the host of this environment, the same one each time.

        Raises ExternalError if the host is taken, reserved or outside every domain, or if the pool does not
        exist.
        """
        request = HostRequest.of(environment, project, team)
        kept = current_choice(ctx.list(DomainPool, namespace=""), request)
        if kept is not None:
            return self._grant(kept)
        try:
            async with self._lock:
                choice = await self._allocate(ctx, request)
        except ExternalError:
            self._metrics.domain_allocations.labels("refused").inc()
            raise
        await self.release(ctx, request.uid, keep=choice.host)
        return self._grant(choice)

    async def hold(self, ctx: Context[Any], request: HostRequest) -> None:
        """Allocate exactly the requested host, if it is under a domain of a pool. Other hosts need no pool.

        Raises ExternalError if the host is taken, reserved, or not open to the namespace.
        """
        pools = ctx.list(DomainPool, namespace="")
        if current_choice(pools, request) is not None or not is_pooled(pools, request):
            return
        try:
            async with self._lock:
                await self._allocate(ctx, request)
        except ExternalError:
            self._metrics.domain_allocations.labels("refused").inc()
            raise

    async def release(self, ctx: Context[Any], uid: str, *, keep: str = "") -> None:
        """Release all hosts of the environment with this UID, except the one to keep."""
        cached = ctx.list(DomainPool, namespace="")
        # On deletion, read from the API server: the cache may lack a write whose response was lost.
        if not ctx.resource.metadata.deleting and not any(
            allocations_of(pool, uid, but=keep) for pool in cached
        ):
            return
        async with self._lock:
            await self._release(ctx, uid, keep=keep)

    async def _release(self, ctx: Context[Any], uid: str, *, keep: str = "") -> None:
        for _ in range(_ATTEMPTS):
            holding = [pool for pool in await self._read(ctx) if allocations_of(pool, uid, but=keep)]
            if not holding:
                return
            for pool in holding:
                gone = allocations_of(pool, uid, but=keep)
                kept = [each for each in pool.status.allocations if each not in gone]
                await self._write(ctx, pool, kept)
        raise ExternalFailure(
            f"could not release the hosts of environment {uid}: the pools kept changing", reason="PoolBusy"
        )

    async def _allocate(self, ctx: Context[Any], request: HostRequest) -> Choice:
        for _ in range(_ATTEMPTS):
            pools = await self._all(ctx)
            kept = current_choice(pools, request)
            if kept is not None:
                return kept
            domain = self._settings.preview_environment_domain
            choice = choose(pools, request, self._rng, preview_domain=domain)
            allocation = Allocation(
                host=choice.host,
                project=request.project,
                kind=request.kind,
                environment=request.environment,
                uid=request.uid,
            )
            allocations = [*choice.pool.status.allocations, allocation]
            if not await self._write(ctx, choice.pool, allocations, last_domain=choice.domain):
                continue
            if await self._is_held_alone(ctx, choice.host, request.uid):
                self._metrics.domain_allocations.labels("allocated").inc()
                return choice
            await self._release(ctx, request.uid)
        raise ExternalFailure("could not allocate a host: the pools kept changing", reason="PoolBusy")

    async def _is_held_alone(self, ctx: Context[Any], host: str, uid: str) -> bool:
        """Return whether no other pool allocated the host between the read and the write."""
        pools = await self._read(ctx)
        return not any(
            each.host == host and each.uid != uid for pool in pools for each in pool.status.allocations
        )

    async def _write(
        self,
        ctx: Context[Any],
        pool: DomainPool,
        allocations: list[Allocation],
        *,
        last_domain: str | None = None,
    ) -> bool:
        """Write the allocations.

        Returns False if the pool was changed since it was read, and has to be read again.
        """
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

    async def _all(self, ctx: Context[Any]) -> Sequence[DomainPool]:
        """Return the pools from the API server, with the built-in pool if there is no other."""
        for _ in range(_ATTEMPTS):
            pools = await self._read(ctx)
            domain = self._settings.preview_domain
            built_in = next((pool for pool in pools if pool.name == BUILT_IN), None)
            if any(pool.name != BUILT_IN for pool in active_pools(pools)):
                return pools
            if built_in is not None and (
                built_in.metadata.deleting or built_in.spec.base_domains == (domain,)
            ):
                return pools
            await self._ensure_built_in(ctx, domain, exists=built_in is not None)
        raise ExternalFailure(f"could not create DomainPool {BUILT_IN}: it kept changing", reason="PoolBusy")

    async def _ensure_built_in(self, ctx: Context[Any], domain: str, *, exists: bool) -> None:
        if exists:
            await ctx.patch(DomainPool, BUILT_IN, {"spec": {"baseDomains": [domain]}}, namespace="")
            return
        try:
            await ctx.create(built_in_pool(domain), owner=False)
        except AlreadyExists:
            return  # another process created it; the next read returns it

    async def _read(self, ctx: Context[Any]) -> Sequence[DomainPool]:
        return (await ctx.client.list(DomainPool)).items

    def _grant(self, choice: Choice) -> HostGrant:
        spec = choice.pool.spec
        issuer = spec.cert_manager.issuer_ref if spec.cert_manager is not None else None
        if issuer is None and self._settings.cluster_issuer:
            issuer = IssuerReference(name=self._settings.cluster_issuer)
        # A wildcard certificate covers exactly one label.
        covered = "." not in choice.host.removesuffix(f".{choice.domain}")
        return HostGrant(
            host=choice.host,
            issuer=(issuer.kind, issuer.name) if issuer is not None else None,
            wildcard_secret=spec.wildcard_secret_name if covered else None,
        )

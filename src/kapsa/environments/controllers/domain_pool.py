"""DomainPools: their counts and conditions, lost hosts, and the deletion of a pool.

`kapsa.environments.hosts.pools` allocates and releases hosts. This controller releases the hosts of
environments that cannot do it themselves, because their finalizer was removed by hand. A pool is the only
record of its allocations: a pool that is deleted stays, and allocates no more hosts, until the last host is
released.
"""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.environments.hosts.choice import domain_counts, shared_domains
from kapsa.environments.resources import Allocation, DomainPool, Environment, PreviewEnvironment
from kapsa.runtime import (
    Cache,
    Change,
    Context,
    Controller,
    Key,
    NotFound,
    Requeue,
    StoredObject,
    Watch,
    any_of,
    generation_changed,
    rule_for,
)

__all__ = ["DomainPoolController"]

_HOLDERS: dict[str, type[Environment | PreviewEnvironment]] = {
    kind.kind: kind for kind in (Environment, PreviewEnvironment)
}
"""The kinds that hold hosts."""
_LOOK_AGAIN_SECONDS = 3600.0
_HOLDERS_SHOWN = 5
"""The number of holders in a condition; the status lists all."""


def _is_gone(change: Change) -> bool:
    return change.new is None


def _is_going(change: Change) -> bool:
    """Return whether a pool is being deleted: then it waits for every host to be released."""
    return change.new is not None and change.new.deletion_timestamp is not None


def _holding_pools(environment: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map an environment to the pools that allocated a host to it."""
    uid = environment.uid.encode()
    return [pool.key for pool in cache.select(DomainPool.gvk) if uid in pool.raw]


def _other_pools(changed: StoredObject, cache: Cache) -> Iterable[Key]:
    """Map a pool to all others: they may share a domain with it."""
    return [pool.key for pool in cache.select(DomainPool.gvk) if pool.uid != changed.uid]


class DomainPoolController(Controller[DomainPool]):
    """The controller of DomainPools."""

    # Every allocation changes the status. Unless the pool is being deleted, that needs no reconcile.
    predicates = (any_of(generation_changed, _is_going),)
    watches = (
        *(Watch(kind, map=_holding_pools, predicates=(_is_gone,)) for kind in _HOLDERS.values()),
        Watch(DomainPool, map=_other_pools, predicates=(generation_changed,)),
    )
    rules = (rule_for(DomainPool, "create", "patch"),)
    resync = _LOOK_AGAIN_SECONDS

    async def reconcile(self, pool: DomainPool, ctx: Context[DomainPool]) -> Requeue | None:
        await _release_lost(pool, ctx)
        shared = shared_domains(pool, ctx.list(DomainPool, namespace=""))
        if shared:
            ctx.condition("Ready", False, reason="DomainTaken", message=shared)
        else:
            domains = ", ".join(pool.spec.base_domains)
            ctx.condition("Ready", True, reason="GivesOutHosts", message=f"allocates hosts under {domains}")
        return None

    async def finalize(self, pool: DomainPool, ctx: Context[DomainPool]) -> Requeue | None:
        held = await _release_lost(pool, ctx)
        if not held:
            return None
        shown = ", ".join(f"{each.host} (environment {each.environment})" for each in held[:_HOLDERS_SHOWN])
        more = f" and {len(held) - _HOLDERS_SHOWN} more" if len(held) > _HOLDERS_SHOWN else ""
        message = f"deletion waits for {len(held)} hosts that environments still hold: {shown}{more}"
        before = pool.status.condition("Ready")
        if before is None or before.reason != "HostsHeld":
            ctx.event("Warning", "HostsHeld", message, action="Delete")
        ctx.condition("Ready", False, reason="HostsHeld", message=message)
        return Requeue(after=_LOOK_AGAIN_SECONDS)


async def _release_lost(pool: DomainPool, ctx: Context[DomainPool]) -> list[Allocation]:
    """Release the hosts of environments that no longer exist, and return the allocations that remain."""
    held = [each for each in pool.status.allocations if await _exists(each, ctx)]
    lost = len(pool.status.allocations) - len(held)
    if lost:
        ctx.status.allocations = held
        ctx.event("Normal", "HostsReleased", f"released {lost} hosts of environments that no longer exist")
    ctx.status.allocated = len(held)
    ctx.status.domains = domain_counts(pool, held)
    return held


async def _exists(allocation: Allocation, ctx: Context[DomainPool]) -> bool:
    """Return whether the environment that holds a host exists.

    The cache may lag, so the API server decides.
    """
    namespace, _, name = allocation.environment.partition("/")
    kind = _HOLDERS[allocation.kind]
    cached = ctx.get(kind, name, namespace=namespace)
    if cached is not None and cached.metadata.uid == allocation.uid:
        return True
    try:
        live = await ctx.client.get(kind, name, namespace=namespace)
    except (NotFound, ValueError):
        return False
    return live.metadata.uid == allocation.uid

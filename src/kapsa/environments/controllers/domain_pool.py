"""DomainPools: their counts and conditions, hosts taken back from environments that are no more, and the end of a pool.

Hosts are given out and given back elsewhere (`kapsa.environments.domains.pools`). What is done here is what nobody else can: an
environment whose finalizer somebody removed by hand cannot give back anything. And a pool is the only record of who holds its
hosts: one that is deleted stays, and gives out none, until the last of them is given back.
"""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.environments.domains.choice import domain_counts, shared_domains
from kapsa.environments.resources import Allocation, DomainPool, Environment
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

_LOOK_AGAIN_SECONDS = 3600.0
_TOLD = 5
"""How many holders a condition names; the status has them all."""


def _is_gone(change: Change) -> bool:
    return change.new is None


def _is_going(change: Change) -> bool:
    """Whether a pool is being deleted: then it waits for every host that is given back."""
    return change.new is not None and change.new.deletion_timestamp is not None


def _holding_pools(environment: StoredObject, cache: Cache) -> Iterable[Key]:
    """The pools that name the environment."""
    uid = environment.uid.encode()
    return [pool.key for pool in cache.select(DomainPool.gvk) if uid in pool.raw]


def _other_pools(changed: StoredObject, cache: Cache) -> Iterable[Key]:
    """Whether a pool has its domains for itself depends on all the others."""
    return [pool.key for pool in cache.select(DomainPool.gvk) if pool.uid != changed.uid]


class DomainPoolController(Controller[DomainPool]):
    """Reconciles DomainPools."""

    # Every host that is given out changes the status: nothing follows from that here while the pool is to stay.
    predicates = (any_of(generation_changed, _is_going),)
    watches = (
        Watch(Environment, map=_holding_pools, predicates=(_is_gone,)),
        Watch(DomainPool, map=_other_pools, predicates=(generation_changed,)),
    )
    rules = (rule_for(DomainPool, "create", "patch"),)
    resync = _LOOK_AGAIN_SECONDS

    async def reconcile(self, pool: DomainPool, ctx: Context[DomainPool]) -> Requeue | None:
        await _take_back(pool, ctx)
        shared = shared_domains(pool, ctx.list(DomainPool, namespace=""))
        if shared:
            ctx.condition("Ready", False, reason="DomainTaken", message=shared)
        else:
            domains = ", ".join(pool.spec.base_domains)
            ctx.condition("Ready", True, reason="GivesOutHosts", message=f"hosts below {domains}")
        return None

    async def finalize(self, pool: DomainPool, ctx: Context[DomainPool]) -> Requeue | None:
        held = await _take_back(pool, ctx)
        if not held:
            return None
        told = ", ".join(f"{each.host} (environment {each.environment})" for each in held[:_TOLD])
        more = f" and {len(held) - _TOLD} more" if len(held) > _TOLD else ""
        message = f"it is being deleted, and environments hold hosts of it ({len(held)}): {told}{more}"
        known = pool.status.condition("Ready")
        if known is None or known.reason != "HostsHeld":
            ctx.event("Warning", "HostsHeld", message, action="Delete")
        ctx.condition("Ready", False, reason="HostsHeld", message=message)
        return Requeue(after=_LOOK_AGAIN_SECONDS)


async def _take_back(pool: DomainPool, ctx: Context[DomainPool]) -> list[Allocation]:
    """Drop the hosts of environments that are gone, and count; those that are held."""
    held = [each for each in pool.status.allocations if await _is_alive(each, ctx)]
    lost = len(pool.status.allocations) - len(held)
    if lost:
        ctx.status.allocations = held
        ctx.event("Normal", "HostsReleased", f"{lost} hosts of environments that are gone")
    ctx.status.allocated = len(held)
    ctx.status.domains = domain_counts(pool, held)
    return held


async def _is_alive(allocation: Allocation, ctx: Context[DomainPool]) -> bool:
    """Whether the environment that holds a host is still there. The cache may lag: before a no, the server is asked."""
    namespace, _, name = allocation.environment.partition("/")
    known = ctx.get(Environment, name, namespace=namespace)
    if known is not None and known.metadata.uid == allocation.uid:
        return True
    try:
        found = await ctx.client.get(Environment, name, namespace=namespace)
    except (NotFound, ValueError):
        return False
    return found.metadata.uid == allocation.uid

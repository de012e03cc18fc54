"""Which host an environment gets: chosen from the pools as they were read, by pure functions.

The pools' statuses are the only record of who holds what. All pools are looked at, since two may have the same domain; below
it the senior one gives out hosts, and the other none. A pool that is being deleted gives out none: its domains are another's,
and what it gave out before stays with its holders.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from kapsa.adapters.errors import ExternalNotFound, Refused
from kapsa.environments.names import MANAGED_BY, OPERATOR, bounded, host_label, host_name
from kapsa.environments.resources import (
    Allocation,
    DomainCount,
    DomainPool,
    DomainPoolSpec,
    Environment,
    Project,
)
from kapsa.runtime import ObjectMeta

__all__ = [
    "BUILT_IN",
    "DEFAULT_POOL",
    "Choice",
    "HostRequest",
    "allocations_of",
    "built_in_pool",
    "choose",
    "domain_counts",
    "giving_pools",
    "kept_choice",
    "shared_domains",
]

BUILT_IN = "kapsa-built-in"
"""The pool that is made while administrators have made none."""
DEFAULT_POOL = "kapsa-project.io/default-pool"
"""An annotation: the pool of projects that name none. Else it is the oldest one."""
_SUFFIX_DIGITS = 5


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants a host, and which."""

    uid: str
    """The environment's identity."""
    environment: str
    """Its namespace and name."""
    project: str = ""
    """The project's namespace and name."""
    host: str = ""
    """Exactly this host, if one is asked for."""
    labels: tuple[str, ...] = ()
    """Else the first free of these, below a domain of the pool."""
    pool: str = ""
    """The pool to take it from; the default one if empty."""

    @classmethod
    def of(cls, environment: Environment, project: Project) -> HostRequest:
        """What an environment of a project asks for."""
        domain, name = project.spec.domain, environment.name
        if domain.subdomain is not None:
            labels = [(name, domain.subdomain), (name, domain.subdomain, project.namespace)]
        else:
            labels = [(name,), (name, project.name), (name, project.name, project.namespace)]
        return cls(
            uid=environment.metadata.uid,
            environment=str(environment.metadata),
            project=str(project.metadata),
            host=environment.spec.ingress.host or "",
            labels=tuple(host_label(*parts) for parts in labels),
            pool=domain.domain_pool_ref.name if domain.domain_pool_ref is not None else "",
        )

    def candidates(self) -> Iterable[str]:
        """Labels in the order in which they are tried; the last is this environment's own for sure."""
        yield from self.labels
        suffix = hashlib.sha256(self.uid.encode()).hexdigest()[:_SUFFIX_DIGITS]
        yield f"{bounded(self.labels[-1], 63 - _SUFFIX_DIGITS - 1)}-{suffix}"


class Choice(msgspec.Struct, frozen=True):
    """A host that is free."""

    pool: DomainPool
    domain: str
    host: str


def built_in_pool(domain: str) -> DomainPool:
    """The pool that is made while administrators have made none."""
    metadata = ObjectMeta(name=BUILT_IN, labels={MANAGED_BY: OPERATOR})
    return DomainPool(metadata=metadata, spec=DomainPoolSpec(base_domains=(domain,)))


def choose(pools: Sequence[DomainPool], request: HostRequest, rng: random.Random) -> Choice:
    """A free host for the request.

    :raises ExternalError: there is none for it.
    """
    named = [pool for pool in pools if pool.name == request.pool]
    if request.pool and not named:
        raise ExternalNotFound(
            f"there is no DomainPool {request.pool}",
            reason="DomainPoolNotFound",
            hint="Name another in domain.domainPoolRef of the project, or have an administrator make it",
        )
    if named and named[0].metadata.deleting:
        raise Refused(
            f"DomainPool {request.pool} is being deleted and gives out no more hosts",
            reason="DomainPoolTerminating",
            hint="Name another in domain.domainPoolRef of the project",
        )
    if request.host:
        return _asked_for(pools, named or pools, request)
    return _generated(pools, named[0] if named else _default(pools), request, rng)


def _asked_for(pools: Sequence[DomainPool], allowed: Sequence[DomainPool], request: HostRequest) -> Choice:
    owners = _owners(pools)
    fitting = [domain for domain in owners if request.host.endswith(f".{domain}")]
    domain = max(fitting, key=len, default="")
    if not domain or owners[domain] not in allowed or request.host in owners:
        names = ", ".join(sorted(each for each, pool in owners.items() if pool in allowed))
        raise Refused(
            f"host {request.host} is not below a domain that is given out here ({names})",
            reason="HostOutsidePools",
            hint="Ask for a host below one of these, or have an administrator add the domain to a DomainPool",
        )
    choice = Choice(owners[domain], domain, request.host)
    if _is_reserved(choice):
        raise Refused(
            f"host {request.host} is reserved by DomainPool {choice.pool.name}",
            reason="HostReserved",
            hint="Ask for another host",
        )
    holder = _holders(pools).get(request.host)
    if holder is not None and holder.uid != request.uid:
        raise Refused(
            f"host {request.host} is taken by environment {holder.environment}",
            reason="HostTaken",
            hint="Ask for another host, or delete that environment first",
        )
    return choice


def _generated(
    pools: Sequence[DomainPool], pool: DomainPool, request: HostRequest, rng: random.Random
) -> Choice:
    owners, holders = _owners(pools), _holders(pools)
    domains = [domain for domain in pool.spec.base_domains if owners[domain] is pool]
    if not domains:
        raise Refused(
            f"DomainPool {pool.name} has no domain that no other pool has",
            reason="DomainTaken",
            hint="Have an administrator give it a domain of its own",
        )
    domain = _next_domain(pool, domains, rng)
    for label in request.candidates():
        choice = Choice(pool, domain, host_name(label, domain))
        if not _is_reserved(choice) and choice.host not in holders and choice.host not in owners:
            return choice
    raise Refused(
        f"every host for environment {request.environment} below {domain} is taken or reserved",
        reason="NoFreeHost",
        hint="Ask for a host in ingress.host",
    )


def _next_domain(pool: DomainPool, domains: Sequence[str], rng: random.Random) -> str:
    """The domain of the next host, by the pool's strategy."""
    strategy = pool.spec.allocation_policy.strategy
    if strategy == "random":
        return rng.choice(domains)
    if strategy == "least-used":
        counts = Counter(_domain_of(pool, each.host) for each in pool.status.allocations)
        return min(domains, key=lambda domain: counts[domain])
    last = pool.status.last_domain
    return domains[(domains.index(last) + 1) % len(domains)] if last in domains else domains[0]


def kept_choice(pools: Sequence[DomainPool], request: HostRequest) -> Choice | None:
    """The host that the environment holds already, if that is still what it asks for."""
    for pool in pools:
        if request.pool not in ("", pool.name):
            continue
        for each in pool.status.allocations:
            if each.uid != request.uid or request.host not in ("", each.host):
                continue
            if domain := _domain_of(pool, each.host):
                return Choice(pool, domain, each.host)
    return None


def _default(pools: Sequence[DomainPool]) -> DomainPool:
    giving = giving_pools(pools)
    if not giving:
        raise Refused(
            "every DomainPool is being deleted",
            reason="DomainPoolTerminating",
            hint="Have an administrator make one",
        )
    marked = [pool for pool in giving if pool.metadata.annotations.get(DEFAULT_POOL) == "true"]
    return min(marked or giving, key=_seniority)


def giving_pools(pools: Iterable[DomainPool]) -> list[DomainPool]:
    """Those that give out hosts: all that are to stay."""
    return [pool for pool in pools if not pool.metadata.deleting]


def _seniority(pool: DomainPool) -> tuple[bool, datetime, str]:
    """Older pools come first; the built-in one gives way to any that an administrator makes."""
    created = pool.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return pool.name == BUILT_IN, created, pool.name


def _owners(pools: Sequence[DomainPool]) -> dict[str, DomainPool]:
    """Which pool gives out hosts below a domain: where several have it, the senior one."""
    owners: dict[str, DomainPool] = {}
    for pool in sorted(giving_pools(pools), key=_seniority):
        for domain in pool.spec.base_domains:
            owners.setdefault(domain, pool)
    return owners


def _holders(pools: Sequence[DomainPool]) -> dict[str, Allocation]:
    return {each.host: each for pool in pools for each in pool.status.allocations}


def allocations_of(pool: DomainPool, uid: str, *, but: str = "") -> list[Allocation]:
    """What the environment of this UID holds in a pool, but for one host."""
    return [each for each in pool.status.allocations if each.uid == uid and each.host != but]


def _domain_of(pool: DomainPool, host: str) -> str:
    """The pool's domain that a host is below; empty if it is below none."""
    fitting = [domain for domain in pool.spec.base_domains if host.endswith(f".{domain}")]
    return max(fitting, key=len, default="")


def _is_reserved(choice: Choice) -> bool:
    below = choice.host.removesuffix(f".{choice.domain}").rpartition(".")[2]
    return below in choice.pool.spec.allocation_policy.reserved_subdomains


def shared_domains(pool: DomainPool, pools: Sequence[DomainPool]) -> str:
    """Which domains of this pool a senior one gives out, in words; empty if none."""
    owners = _owners(pools)
    others = {domain: owners[domain] for domain in sorted(pool.spec.base_domains)}
    told = [f"{domain} (DomainPool {each.name})" for domain, each in others.items() if each.name != pool.name]
    return f"another pool gives out {', '.join(told)}" if told else ""


def domain_counts(pool: DomainPool, allocations: Sequence[Allocation]) -> list[DomainCount]:
    """How many hosts there are below each domain of a pool."""
    counts = Counter(_domain_of(pool, each.host) for each in allocations)
    return [DomainCount(domain=domain, allocated=counts[domain]) for domain in pool.spec.base_domains]

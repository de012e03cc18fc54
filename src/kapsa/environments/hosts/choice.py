"""The choice of an environment's host from the pools, by pure functions.

The status of the pools is the only record of allocations. If two pools have the same domain, only the older
one allocates hosts under it. A pool that is being deleted allocates none: another pool takes over its
domains, and existing allocations stay.
"""

from __future__ import annotations

import fnmatch
import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from kapsa.adapters.errors import ExternalNotFound, Refused
from kapsa.environments.names import LABEL_LIMIT, MANAGED_BY, OPERATOR, bounded, host_label, host_name
from kapsa.environments.resources import (
    Allocation,
    DomainCount,
    DomainPool,
    DomainPoolSpec,
    Environment,
    Project,
    TeamNamespace,
)
from kapsa.runtime import ObjectMeta

__all__ = [
    "BUILT_IN",
    "DEFAULT_POOL",
    "Choice",
    "HostRequest",
    "active_pools",
    "allocations_of",
    "built_in_pool",
    "choose",
    "current_choice",
    "domain_counts",
    "is_open",
    "is_pooled",
    "shared_domains",
]

BUILT_IN = "kapsa-built-in"
"""The pool that the operator creates while there is no other."""
DEFAULT_POOL = "kapsa-project.io/default-pool"
"""An annotation of the pool for projects that name none; without it, the oldest pool is used."""
_SUFFIX_DIGITS = 5


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a host."""

    uid: str
    """The UID of the environment."""
    kind: Literal["Environment", "PreviewEnvironment"] = "Environment"
    """The kind of the resource that asks for it."""
    environment: str
    """The namespace and name of the environment."""
    project: str = ""
    """The namespace and name of the project."""
    host: str = ""
    """The requested host; empty to generate one."""
    labels: tuple[str, ...] = ()
    """The labels to try for a generated host, under a domain of the pool."""
    pool: str = ""
    """The name of the pool; the default pool if empty."""
    team: TeamNamespace
    """The namespace of the project, which decides about pools and labels."""

    @classmethod
    def of(cls, environment: Environment, project: Project, team: TeamNamespace) -> HostRequest:
        """Return the request of an environment of a project in the namespace of a team."""
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
            team=team,
        )

    def candidates(self) -> Iterable[str]:
        """Yield the labels in the order in which they are tried; the last is unique to this environment."""
        yield from self.labels
        suffix = hashlib.sha256(self.uid.encode()).hexdigest()[:_SUFFIX_DIGITS]
        yield f"{bounded(self.labels[-1], 63 - _SUFFIX_DIGITS - 1)}-{suffix}"


class Choice(msgspec.Struct, frozen=True):
    """A free host."""

    pool: DomainPool
    domain: str
    host: str


def built_in_pool(domain: str) -> DomainPool:
    """Return the pool that the operator creates while there is no other."""
    metadata = ObjectMeta(name=BUILT_IN, labels={MANAGED_BY: OPERATOR})
    return DomainPool(metadata=metadata, spec=DomainPoolSpec(base_domains=(domain,)))


def choose(
    pools: Sequence[DomainPool], request: HostRequest, rng: random.Random, *, preview_domain: str = ""
) -> Choice:
    """Return a free host for the request. Hosts such as pr-42 under `preview_domain` are for PreviewEnvironments.

    They have them before any pool has their domain, so that a pool that comes later cannot know them as taken.

    Raises ExternalError if there is none.
    """
    named = [pool for pool in pools if pool.name == request.pool]
    if request.pool and not named:
        raise ExternalNotFound(
            f"DomainPool {request.pool} does not exist",
            reason="DomainPoolNotFound",
            hint="Set domain.domainPoolRef of the Project to another pool, or ask an administrator to create it",
        )
    if named and named[0].metadata.deleting:
        raise Refused(
            f"DomainPool {request.pool} is being deleted and allocates no more hosts",
            reason="DomainPoolTerminating",
            hint="Set domain.domainPoolRef of the Project to another pool",
        )
    open_pools = [pool for pool in named or pools if is_open(pool, request.team)]
    if not open_pools:
        raise Refused(
            f"DomainPool {request.pool} is not open to namespace {request.team.name}"
            if named
            else f"no DomainPool is open to namespace {request.team.name}",
            reason="DomainPoolNotAllowed",
            hint="Set domain.domainPoolRef of the Project to another pool, or ask an administrator to add the namespace "
            "to allowedNamespaces",
        )
    kept = _preview_hosts(preview_domain) if request.kind != "PreviewEnvironment" else None
    if request.host:
        return _requested(pools, open_pools, request, kept)
    return _generated(pools, named[0] if named else _default(open_pools), request, rng, kept)


def _preview_hosts(domain: str) -> re.Pattern[str] | None:
    """Return the pattern of the hosts of PreviewEnvironments, and of those below, also while no pool has them."""
    return re.compile(rf"(.+\.)?pr-[0-9]+\.{re.escape(domain)}") if domain else None


def _requested(
    pools: Sequence[DomainPool],
    allowed: Sequence[DomainPool],
    request: HostRequest,
    kept: re.Pattern[str] | None,
) -> Choice:
    owners = _owners(pools)
    domain = _longest(owners, request.host)
    if not domain or owners[domain] not in allowed or request.host in owners:
        names = ", ".join(sorted(each for each, pool in owners.items() if pool in allowed))
        raise Refused(
            f"host {request.host} is not under any domain available to the Project ({names})",
            reason="HostOutsidePools",
            hint="Choose a host under one of these, or ask an administrator to add the domain to a DomainPool",
        )
    choice = Choice(owners[domain], domain, request.host)
    if kept is not None and kept.fullmatch(request.host):
        raise Refused(
            f"host {request.host} is reserved for the PreviewEnvironment of that pull request",
            reason="HostReserved",
            hint="Choose another host",
        )
    if _is_reserved(choice):
        raise Refused(
            f"host {request.host} is reserved by DomainPool {choice.pool.name}",
            reason="HostReserved",
            hint="Choose another host",
        )
    if not _is_label_open(choice, request.team):
        raise Refused(
            f"host {request.host} is not among the hosts that DomainPool {choice.pool.name} has for namespace "
            f"{request.team.name}",
            reason="HostNotAllowed",
            hint="Choose another host, or ask an administrator to change allocationPolicy.subdomains of the pool",
        )
    _refuse_taken(pools, request)
    if (neighbour := _foreign_neighbour(pools, choice, request.team)) is not None:
        raise Refused(
            f"host {request.host} is above or below {neighbour.host}, which environment {neighbour.environment} of "
            "another team holds",
            reason="HostTaken",
            hint="Choose another host",
        )
    return choice


def _foreign_neighbour(pools: Sequence[DomainPool], choice: Choice, team: TeamNamespace) -> Allocation | None:
    """Return the allocation to another team of a host above or below this one, under the same domain.

    A host sees and sets cookies of the one above it, and looks like a part of it.
    """
    owners = _owners(pools)
    for each in _holders(pools).values():
        related = each.host.endswith(f".{choice.host}") or choice.host.endswith(f".{each.host}")
        if related and _team_of(each) != team.name and _longest(owners, each.host) == choice.domain:
            return each
    return None


def _team_of(allocation: Allocation) -> str:
    """Return the namespace of the team that holds a host. A PreviewEnvironment is in that of its team."""
    return (allocation.project or allocation.environment).partition("/")[0]


def _refuse_taken(pools: Sequence[DomainPool], request: HostRequest) -> None:
    holder = _holders(pools).get(request.host)
    if holder is not None and holder.uid != request.uid:
        raise Refused(
            f"host {request.host} is taken by environment {holder.environment}",
            reason="HostTaken",
            hint="Choose another host, or delete that environment first",
        )


def is_pooled(pools: Sequence[DomainPool], request: HostRequest) -> bool:
    """Return whether a pool allocates the requested host. One that none allocates can have no other holder.

    Raises ExternalError if a pool that is being deleted has it allocated to another environment.
    """
    if any(request.host.endswith(f".{domain}") for domain in _owners(pools)):
        return True
    _refuse_taken(pools, request)
    return False


def _generated(
    pools: Sequence[DomainPool],
    pool: DomainPool,
    request: HostRequest,
    rng: random.Random,
    kept: re.Pattern[str] | None,
) -> Choice:
    owners, holders = _owners(pools), _holders(pools)
    domains = [domain for domain in pool.spec.base_domains if owners[domain] is pool]
    if not domains:
        raise Refused(
            f"DomainPool {pool.name} shares every domain with an older pool",
            reason="DomainTaken",
            hint="Ask an administrator to give it a domain of its own",
        )
    domain = _next_domain(pool, domains, rng)
    for label in request.candidates():
        for fitting in _fitting_labels(pool, request.team, label):
            choice = Choice(pool, domain, host_name(fitting, domain))
            taken = choice.host in holders or choice.host in owners or (kept and kept.fullmatch(choice.host))
            free = not taken and not _is_reserved(choice) and _is_label_open(choice, request.team)
            if free and _foreign_neighbour(pools, choice, request.team) is None:
                return choice
    raise Refused(
        f"every host for environment {request.environment} under {domain} is taken or reserved",
        reason="NoFreeHost",
        hint="Set a host in ingress.host",
    )


def _next_domain(pool: DomainPool, domains: Sequence[str], rng: random.Random) -> str:
    """Return the domain of the next host, by the pool's strategy."""
    strategy = pool.spec.allocation_policy.strategy
    if strategy == "random":
        return rng.choice(domains)
    if strategy == "least-used":
        counts = Counter(_domain_of(pool, each.host) for each in pool.status.allocations)
        return min(domains, key=lambda domain: counts[domain])
    last = pool.status.last_domain
    return domains[(domains.index(last) + 1) % len(domains)] if last in domains else domains[0]


def current_choice(pools: Sequence[DomainPool], request: HostRequest) -> Choice | None:
    """Return the host that the environment already holds, if it still matches the request."""
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
    active = active_pools(pools)
    if not active:
        raise Refused(
            "every DomainPool is being deleted",
            reason="DomainPoolTerminating",
            hint="Ask an administrator to create one",
        )
    marked = [pool for pool in active if pool.metadata.annotations.get(DEFAULT_POOL) == "true"]
    return min(marked or active, key=_seniority)


def active_pools(pools: Iterable[DomainPool]) -> list[DomainPool]:
    """Return the pools that allocate hosts: those that are not being deleted."""
    return [pool for pool in pools if not pool.metadata.deleting]


def _seniority(pool: DomainPool) -> tuple[bool, datetime, str]:
    """Return the sort key of a pool: older pools come first, the built-in one last."""
    created = pool.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return pool.name == BUILT_IN, created, pool.name


def _owners(pools: Sequence[DomainPool]) -> dict[str, DomainPool]:
    """Return the pool that allocates hosts under each domain: the oldest of those that have it."""
    owners: dict[str, DomainPool] = {}
    for pool in sorted(active_pools(pools), key=_seniority):
        for domain in pool.spec.base_domains:
            owners.setdefault(domain, pool)
    return owners


def _holders(pools: Sequence[DomainPool]) -> dict[str, Allocation]:
    return {each.host: each for pool in pools for each in pool.status.allocations}


def allocations_of(pool: DomainPool, uid: str, *, but: str = "") -> list[Allocation]:
    """Return the allocations of the environment with this UID in a pool, except one host."""
    return [each for each in pool.status.allocations if each.uid == uid and each.host != but]


def _domain_of(pool: DomainPool, host: str) -> str:
    """Return the pool's domain that a host is under; empty if there is none."""
    return _longest(pool.spec.base_domains, host)


def _longest(domains: Iterable[str], host: str) -> str:
    """Return the longest of the domains that a host is under; empty if there is none."""
    return max((domain for domain in domains if host.endswith(f".{domain}")), key=len, default="")


def _label_of(choice: Choice) -> str:
    """Return the label of a host directly under its domain."""
    return choice.host.removesuffix(f".{choice.domain}").rpartition(".")[2]


def _is_reserved(choice: Choice) -> bool:
    return _label_of(choice) in choice.pool.spec.allocation_policy.reserved_subdomains


def is_open(pool: DomainPool, team: TeamNamespace) -> bool:
    """Return whether the projects of a namespace get hosts from a pool."""
    allowed = pool.spec.allowed_namespaces
    return allowed is None or allowed.includes(team)


def _own_patterns(pool: DomainPool, team: TeamNamespace) -> list[str]:
    grants = pool.spec.allocation_policy.subdomains
    return [label for grant in grants if grant.namespaces.includes(team) for label in grant.labels]


def _is_label_open(choice: Choice, team: TeamNamespace) -> bool:
    """Return whether a team may have the label: one of its own if it has any, else one of nobody."""
    label, own = _label_of(choice), _own_patterns(choice.pool, team)
    every = [each for grant in choice.pool.spec.allocation_policy.subdomains for each in grant.labels]
    if own:
        return any(fnmatch.fnmatchcase(label, pattern) for pattern in own)
    return not any(fnmatch.fnmatchcase(label, pattern) for pattern in every)


def _fitting_labels(pool: DomainPool, team: TeamNamespace, label: str) -> Iterable[str]:
    """Yield the label, then the patterns of the team with the label in place of their star."""
    yield label
    for pattern in _own_patterns(pool, team):
        yield pattern.replace("*", bounded(label, LABEL_LIMIT + 1 - len(pattern)), 1).replace("*", "")


def shared_domains(pool: DomainPool, pools: Sequence[DomainPool]) -> str:
    """Return a message about the domains of this pool that an older one has; empty if there are none."""
    owners = _owners(pools)
    others = {domain: owners[domain] for domain in sorted(pool.spec.base_domains)}
    shared = [
        f"{domain} (DomainPool {each.name})" for domain, each in others.items() if each.name != pool.name
    ]
    return f"another pool allocates hosts under {', '.join(shared)}" if shared else ""


def domain_counts(pool: DomainPool, allocations: Sequence[Allocation]) -> list[DomainCount]:
    """Return the number of hosts under each domain of a pool."""
    counts = Counter(_domain_of(pool, each.host) for each in allocations)
    return [DomainCount(domain=domain, allocated=counts[domain]) for domain in pool.spec.base_domains]

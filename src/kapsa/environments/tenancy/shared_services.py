"""Shared services: private addresses that the administrator opens to the environments of certain Projects.

Only DomainPools open them, and only administrators write those: nothing in a Project, an Environment or a repository
widens what an environment reaches. The API server stays out of reach, whatever a pool says.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from kapsa.environments.resources import DomainPool, Project, SharedService, TeamNamespace

__all__ = ["shared_egress"]


def shared_egress(
    pools: Iterable[DomainPool], project: Project, team: TeamNamespace, *, api_server: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the egress rules of a NetworkPolicy for the services that a project may reach, in a fixed order.

    They leave out the address ranges of the API server.
    """
    services = [
        service
        for pool in sorted(pools, key=lambda each: each.name)
        if pool.spec.allowed_namespaces is None or pool.spec.allowed_namespaces.includes(team)
        for service in sorted(pool.spec.shared_services, key=lambda each: each.name)
        if _reaches(service, project, team)
    ]
    rules = [_rule(service, api_server) for service in services]
    return [rule for rule in rules if rule["to"]]  # a rule without peers would allow all of them


def _reaches(service: SharedService, project: Project, team: TeamNamespace) -> bool:
    if service.namespaces is None:
        # Everybody may call a Project as they like, so names alone open nothing. New pools cannot have them alone.
        return not service.projects
    return service.namespaces.includes(team) and (not service.projects or project.name in service.projects)


def _rule(service: SharedService, api_server: Sequence[str]) -> dict[str, Any]:
    blocks = [block for cidr in service.cidrs if (block := _block(cidr, api_server))]
    rule: dict[str, Any] = {"to": [{"ipBlock": block} for block in blocks]}
    if service.ports:
        rule["ports"] = [{"protocol": each.protocol, "port": each.port} for each in service.ports]
    return rule


def _block(cidr: str, api_server: Sequence[str]) -> dict[str, Any] | None:
    """Return the range without the addresses of the API server; None if nothing is left of it."""
    network = ipaddress.ip_network(cidr, strict=False)
    forbidden = [
        each for text in api_server if (each := ipaddress.ip_network(text)).version == network.version
    ]
    if any(network.subnet_of(each) for each in forbidden):  # type: ignore[arg-type]
        return None
    inside = sorted(str(each) for each in forbidden if each.subnet_of(network))  # type: ignore[arg-type]
    return {"cidr": str(network), **({"except": inside} if inside else {})}

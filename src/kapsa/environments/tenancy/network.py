"""Peers of NetworkPolicies: DNS, the ingress controller, the solver of ACME challenges, and the internet."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, TypeAlias

from kapsa.environments.settings import Settings

__all__ = ["SOLVER_PORT", "cluster_dns", "ingress_controller", "internet"]

_IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

SOLVER_PORT = 8089
"""The port on which cert-manager's solver pods answer HTTP-01 challenges."""
_NODE_LOCAL_DNS = "169.254.20.10/32"
# Not the internet: the pods of other tenants, nodes, and link-local addresses such as metadata services.
_NOT_THE_INTERNET = (
    ("0.0.0.0/0", 4, ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")),
    ("::/0", 6, ("fc00::/7", "fe80::/10")),
)


def cluster_dns() -> list[dict[str, Any]]:
    """Return the peers that resolve names: the cluster's DNS, and a cache on the node."""
    return [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": _NODE_LOCAL_DNS}},
    ]


def ingress_controller(settings: Settings) -> dict[str, Any]:
    """Return the peer of the ingress controller's pods."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.ingress_namespace}}}


def internet(settings: Settings, api_server: Sequence[str]) -> list[dict[str, Any]]:
    """Return the peers of all addresses that are neither private nor the API server's."""
    networks = [ipaddress.ip_network(cidr) for cidr in (*settings.api_server_cidrs, *api_server)]
    blocks = []
    for cidr, version, private in _NOT_THE_INTERNET:
        closed = [ipaddress.ip_network(each) for each in private]
        # Whatever the address is reserved for: a cluster may be at one that is neither private nor public.
        more = [each for each in networks if each.version == version and not _is_in(each, closed)]
        blocks.append({"ipBlock": {"cidr": cidr, "except": sorted({*private, *map(str, more)})}})
    return blocks


def _is_in(network: _IpNetwork, ranges: Sequence[_IpNetwork]) -> bool:
    """Return whether one of these ranges, all of the same version, has the whole network."""
    return any(network.subnet_of(each) for each in ranges)  # type: ignore[arg-type]

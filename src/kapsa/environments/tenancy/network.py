"""Peers of NetworkPolicies: DNS, the ingress controller, the solver of ACME challenges, and the internet."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from kapsa.environments.settings import Settings

__all__ = ["SOLVER_PORT", "cluster_dns", "ingress_controller", "internet"]

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
    observed = [network for cidr in api_server if (network := ipaddress.ip_network(cidr)).is_global]
    networks = [*map(ipaddress.ip_network, settings.api_server_cidrs), *observed]
    blocks = []
    for cidr, version, private in _NOT_THE_INTERNET:
        forbidden = {*private, *(str(network) for network in networks if network.version == version)}
        blocks.append({"ipBlock": {"cidr": cidr, "except": sorted(forbidden)}})
    return blocks

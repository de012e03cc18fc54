"""The walls of the build namespace: quota, limits and network policies, since a build runs a tenant's code.

A build reaches DNS, the internet and the address ranges in KAPSA_BUILD_EGRESS_CIDRS, and nothing reaches a
build. Private addresses, metadata services and the API server are closed to it as to environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kapsa.environments.build.amounts import DEFAULT_LIMITS, DEFAULT_REQUESTS, build_quota, largest
from kapsa.environments.names import MANAGED_BY, OPERATOR, OWNER_UID
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.network import cluster_dns, internet
from kapsa.runtime import Quantity

__all__ = ["build_walls"]

_OWNER = "build-namespace"
"""The value of the owner label. It makes the operator watch the objects; no resource owns them."""


def build_walls(settings: Settings, api_server: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects that the build namespace has before any build runs in it.

    `api_server` has the address ranges of the API server.
    """
    return [_quota(settings), _limits(settings), *_network_policies(settings, api_server), _account(settings)]


def _account(settings: Settings) -> dict[str, Any]:
    """Return the service account of kpack builds without credentials. It has no rights and no token."""
    account = _object(settings, "v1", "ServiceAccount", settings.kpack_service_account, {})
    del account["spec"]
    return {**account, "automountServiceAccountToken": False}


def _quota(settings: Settings) -> dict[str, Any]:
    hard = {
        "pods": str(settings.build_quota_pods),
        **{f"requests.{name}": total for name, total in build_quota(settings).items()},
        "persistentvolumeclaims": str(settings.build_quota_pods),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }
    return _object(settings, "v1", "ResourceQuota", "kapsa-builds", {"hard": hard})


def _limits(settings: Settings) -> dict[str, Any]:
    """Return the resources of containers that set none, and the most that one may ask for."""
    most = largest(settings)
    container = {
        "type": "Container",
        "default": _within(DEFAULT_LIMITS, most),
        "defaultRequest": _within(DEFAULT_REQUESTS, most),
        "max": most,
    }
    return _object(settings, "v1", "LimitRange", "kapsa-builds", {"limits": [container]})


def _within(amounts: Mapping[str, str], most: Mapping[str, str]) -> dict[str, str]:
    """Return amounts of which none is more than the most."""
    return {name: min(amount, most.get(name, amount), key=Quantity) for name, amount in amounts.items()}


def _network_policies(settings: Settings, api_server: Sequence[str]) -> list[dict[str, Any]]:
    dns_ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    named = [{"ipBlock": {"cidr": cidr}} for cidr in settings.build_egress_cidrs]
    outside = [*internet(settings, api_server), *named]
    policies: list[tuple[str, dict[str, Any]]] = [
        ("kapsa-default-deny", {"policyTypes": ["Ingress", "Egress"]}),
        ("kapsa-dns", {"policyTypes": ["Egress"], "egress": [{"to": cluster_dns(), "ports": dns_ports}]}),
        ("kapsa-internet", {"policyTypes": ["Egress"], "egress": [{"to": outside}]}),
    ]
    return [
        _object(settings, "networking.k8s.io/v1", "NetworkPolicy", name, {"podSelector": {}, **spec})
        for name, spec in policies
    ]


def _object(
    settings: Settings, api_version: str, kind: str, name: str, spec: dict[str, Any]
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": settings.build_namespace,
        "labels": {MANAGED_BY: OPERATOR, OWNER_UID: _OWNER},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

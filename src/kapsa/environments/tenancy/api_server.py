"""Addresses of the API server, which environments must not reach: those of the settings and those of the cluster.

Every API server keeps a Service `kubernetes` in the namespace `default`, and an EndpointSlice with its addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.environments.settings import Settings
from kapsa.runtime import Cache, Context, CustomResource, Key, StoredObject, Watch

__all__ = ["ENDPOINT_SLICE", "SERVER_SERVICE", "SERVER_SLICE", "api_server_ranges", "api_server_watches"]

SERVICE = "v1/Service"
ENDPOINT_SLICE = "discovery.k8s.io/v1/EndpointSlice"
SERVER_SERVICE: Mapping[str, str] = {"component": "apiserver", "provider": "kubernetes"}
"""The labels of the Service."""
SERVER_SLICE: Mapping[str, str] = {"kubernetes.io/service-name": "kubernetes"}
"""The label of the EndpointSlices."""
_NAMESPACE = "default"
"""The namespace of both. Elsewhere anybody can create objects with these labels."""
_NAME = "kubernetes"


def api_server_watches(kind: type[CustomResource[Any, Any]]) -> tuple[Watch, ...]:
    """Return the watches that run all resources of a kind when the addresses of the API server change."""

    def all_of_kind(stored: StoredObject, cache: Cache) -> Iterable[Key]:
        return [each.key for each in cache.select(kind.gvk)] if stored.namespace == _NAMESPACE else []

    return (
        Watch(SERVICE, map=all_of_kind, labels=SERVER_SERVICE),
        Watch(ENDPOINT_SLICE, map=all_of_kind, labels=SERVER_SLICE),
    )


def api_server_ranges(ctx: Context[Any], settings: Settings) -> tuple[str, ...]:
    """Return the address ranges of the API server, in a fixed order."""
    addresses: set[str] = set()
    for service in ctx.list(SERVICE, namespace=_NAMESPACE, labels=SERVER_SERVICE):
        if service["metadata"]["name"] == _NAME:
            addresses |= set((service.get("spec") or {}).get("clusterIPs") or ())
    for each in ctx.list(ENDPOINT_SLICE, namespace=_NAMESPACE, labels=SERVER_SLICE):
        for endpoint in each.get("endpoints") or ():
            addresses |= set(endpoint.get("addresses") or ())
    ranges = [str(network) for text in sorted(addresses) if (network := _network(text)) is not None]
    return tuple(dict.fromkeys((*settings.api_server_cidrs, *ranges)))


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the range of one address; None for a name, such as that of an FQDN endpoint, or a headless Service."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None

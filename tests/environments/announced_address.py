"""A public address that the API server of a test announces, as that of a cluster with a public endpoint does."""

from __future__ import annotations

from typing import Any

from tests.environments.sandbox import Sandbox

__all__ = ["PUBLIC_ADDRESS", "announce", "closed"]

PUBLIC_ADDRESS = "203.0.114.7"


async def announce(sandbox: Sandbox, address: str = PUBLIC_ADDRESS) -> None:
    """Announce an address of the API server."""
    manifest = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes-public",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
    }
    await sandbox.client.apply(manifest, field_manager="apiserver", force=True)


def closed(rule: dict[str, Any]) -> set[str]:
    """Return the ranges that an egress rule to the internet leaves out."""
    (block,) = (each["ipBlock"] for each in rule["to"] if each["ipBlock"]["cidr"] == "0.0.0.0/0")
    return set(block["except"])

"""Allowed addresses: each IP address is checked right before a connection."""

from __future__ import annotations

import ipaddress

from kapsa.adapters.errors import Refused
from kapsa.runtime import AddressGuard, public_address

__all__ = ["AddressGuard", "is_ip", "reject_internal_address"]


def reject_internal_address(address: str) -> None:
    """Reject loopback, link-local and metadata addresses.

    Private networks are allowed: git servers are often there.
    """
    if not public_address(address):
        raise Refused(f"address {address} is not allowed for a server", reason="AddressRefused")


def is_ip(host: str) -> bool:
    """Return whether a host is an IP address, which is never resolved."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True

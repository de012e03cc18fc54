"""Allowed addresses: each IP address is checked right before a connection."""

from __future__ import annotations

import ipaddress

from kapsa.adapters.errors import Refused
from kapsa.runtime import AddressGuard, public_address

__all__ = [
    "AddressGuard",
    "is_ip",
    "reject_internal_address",
    "reject_metadata_address",
    "reject_private_address",
]


_RESERVED = tuple(
    ipaddress.ip_network(network) for network in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "fec0::/10")
)
"""Networks that count as global and lead into private ones: relays to IPv4, and what was reserved for sites."""
_INTERNAL_HINT = (
    "Use a server on another host: the operator connects neither to its own host, such as localhost, nor to metadata "
    "services"
)


def reject_internal_address(address: str) -> None:
    """Reject loopback, link-local and metadata addresses.

    Private networks are allowed: git servers are often there.
    """
    if not public_address(address):
        raise _refused(address, _INTERNAL_HINT)


def reject_private_address(address: str) -> None:
    """Reject every address that is not reachable over the internet, those of private networks included."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    reserved = any(parsed in network for network in _RESERVED)
    if reserved or not parsed.is_global or not public_address(address):
        raise _refused(address)


def reject_metadata_address(address: str) -> None:
    """Reject link-local and metadata addresses. Loopback is allowed, for servers on the same machine."""
    if not public_address(address, allow_loopback=True):
        raise _refused(address)


def _refused(address: str, hint: str = "") -> Refused:
    return Refused(f"address {address} is not allowed for a server", hint=hint, reason="AddressRefused")


def is_ip(host: str) -> bool:
    """Return whether a host is an IP address, which is never resolved."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True

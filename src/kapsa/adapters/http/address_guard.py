"""Where connections may go: each IP address is judged right before a connection, since a name can lead anywhere."""

from __future__ import annotations

import ipaddress

from kapsa.adapters.errors import Refused
from kapsa.runtime import AddressGuard, public_address

__all__ = ["AddressGuard", "is_ip", "no_inner_address"]


def no_inner_address(address: str) -> None:
    """The usual guard: neither this host nor a metadata service. Private networks are where such servers often are."""
    if not public_address(address):
        raise Refused(f"no server may be at {address}", reason="AddressRefused")


def is_ip(host: str) -> bool:
    """Whether this is an address itself, which no resolver gets to see."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True

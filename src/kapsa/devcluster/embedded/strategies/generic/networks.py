"""Checks of IP addresses and CIDR ranges, in the forms that kube-apiserver accepts."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from kapsa.schemas.field_errors import FieldError, invalid
from kapsa.schemas.go_format import quote

__all__ = [
    "canonical_address",
    "canonical_range",
    "ip",
    "is_range",
    "parse_ip",
    "range_of_addresses",
    "reachable",
]

NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_RANGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def parse_ip(text: Any) -> IPv4Address | IPv6Address | None:
    """Return the address of a text; None if it has another form."""
    try:
        return ip_address(text or "")
    except ValueError:
        return None


def ip(value: Any, path: str) -> list[FieldError]:
    """Return the error of a text that is not an IP address."""
    return [] if parse_ip(value) else [invalid(path, value or "", NOT_AN_ADDRESS)]


def canonical_address(value: Any, path: str) -> list[FieldError]:
    """Return the error of a text that is not an IP address in its canonical form."""
    address = parse_ip(value)
    if address is None:
        return [invalid(path, value or "", NOT_AN_ADDRESS)]
    if str(address) == value:
        return []
    return [invalid(path, value, f"must be in canonical form ({quote(str(address))})")]


def is_range(value: Any) -> bool:
    """Return whether a text is a CIDR range. Its address may have bits beyond the prefix."""
    address, slash, bits = (value or "").partition("/")
    if not slash or not bits.isdecimal() or "%" in address:
        return False
    try:
        ip_network(value, strict=False)
    except ValueError:
        return False
    return True


def range_of_addresses(value: Any, path: str) -> list[FieldError]:
    """Return the error of a text that is not a CIDR range."""
    return [] if is_range(value) else [invalid(path, value or "", NOT_A_RANGE)]


def canonical_range(value: Any, path: str) -> list[FieldError]:
    """Return the error of a text that is not a CIDR range in its canonical form."""
    if not is_range(value):
        return [invalid(path, value or "", NOT_A_RANGE)]
    proper = str(ip_network(value, strict=False))
    return [] if proper == value else [invalid(path, value, f"must be in canonical form ({quote(proper)})")]


_LOCAL_GROUPS = (IPv4Network("224.0.0.0/24"), IPv6Network("ff02::/16"))


def reachable(value: Any, path: str) -> list[FieldError]:
    """Return the errors of an address that traffic cannot be sent to."""
    address = parse_ip(value)
    if address is None:
        return [invalid(path, value or "", "must be a valid IP address")]
    is_group = any(address in group for group in _LOCAL_GROUPS if group.version == address.version)
    wrong = (
        (address.is_unspecified, f"unspecified ({value})"),
        (address.is_loopback, "in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "in the link-local range (169.254.0.0/16, fe80::/10)"),
        (is_group, "in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    )
    return [invalid(path, value, f"may not be {what}") for applies, what in wrong if applies]

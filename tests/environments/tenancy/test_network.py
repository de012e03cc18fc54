"""Peers of NetworkPolicies: no address that the API server announces counts as the internet."""

from __future__ import annotations

import pytest

from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.network import internet


def closed(*announced: str) -> list[set[str]]:
    """Return the ranges of IPv4 and IPv6 that are not the internet."""
    return [set(each["ipBlock"]["except"]) for each in internet(Settings(), announced)]


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34/32", "240.0.0.1/32", "198.18.0.1/32", "192.0.0.8/32", "203.0.113.9/32", "127.0.0.1/32"],
)
def test_an_announced_address_is_closed_whatever_it_is_reserved_for(address: str) -> None:
    four, six = closed(address)
    assert address in four
    assert six == {"fc00::/7", "fe80::/10"}


@pytest.mark.parametrize("address", ["2a00::1/128", "2001:db8::7/128", "64:ff9b:1::1/128"])
def test_so_is_one_of_ipv6(address: str) -> None:
    four, six = closed(address)
    assert address in six
    assert four == set(closed()[0])


@pytest.mark.parametrize("address", ["10.96.0.1/32", "172.18.0.2/32", "fd00::1/128"])
def test_an_announced_address_in_a_private_range_adds_nothing(address: str) -> None:
    assert closed(address) == closed()

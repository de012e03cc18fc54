"""Addresses that a connection may and may not have."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import Refused
from kapsa.adapters.http.address_guard import (
    reject_internal_address,
    reject_metadata_address,
    reject_private_address,
)

LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
METADATA = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fd20:ce::254",
    "192.0.0.192",
    "0.0.0.0",
    "224.0.0.1",
]
ALLOWED = ["203.0.113.7", "10.0.0.7", "192.168.1.7", "2001:db8::7"]


@pytest.mark.parametrize("address", [*LOOPBACK, *METADATA])
def test_this_machine_and_metadata_services_are_refused(address: str) -> None:
    with pytest.raises(Refused, match="is not allowed"):
        reject_internal_address(address)


@pytest.mark.parametrize("address", METADATA)
def test_metadata_services_are_refused_even_where_loopback_is_allowed(address: str) -> None:
    with pytest.raises(Refused, match="is not allowed"):
        reject_metadata_address(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_other_addresses_are_allowed(address: str) -> None:
    reject_internal_address(address)
    reject_metadata_address(address)


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_is_allowed_for_servers_on_the_same_machine(address: str) -> None:
    reject_metadata_address(address)


PRIVATE = ["10.0.0.7", "172.16.3.4", "192.168.1.7", "100.64.0.1", "fd12::7", "::ffff:10.0.0.7"]
TUNNELS = ["2002:0a00:1::", "2002:a9fe:a9fe::", "2002:101:101::1", "2001:0:101:101::1", "64:ff9b::a00:1"]
RESERVED = ["fec0::7", "192.0.0.192", "192.88.99.1", "198.18.0.1", "240.0.0.1"]


@pytest.mark.parametrize("address", [*LOOPBACK, *METADATA, *PRIVATE, *TUNNELS, *RESERVED])
def test_private_networks_are_refused_where_only_the_internet_is_meant(address: str) -> None:
    with pytest.raises(Refused, match="is not allowed"):
        reject_private_address(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_of_the_internet_are_allowed(address: str) -> None:
    reject_private_address(address)

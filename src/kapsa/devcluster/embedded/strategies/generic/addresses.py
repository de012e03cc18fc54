"""Cluster IPs and node ports: allocated to Services, released when they are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Any

Object = dict[str, Any]

NODE_PORTS = range(30000, 32768)


class AddressError(Exception):
    """An address that cannot be allocated. The message is kube-apiserver's."""


class Addresses:
    """The addresses of stored Services.

    The store's changes call `hold` and `release`, so a dry run or a failed write allocates nothing.
    """

    def __init__(self, network: str = "10.96.0.0/16") -> None:
        self.network = IPv4Network(network)
        self._holders: dict[str, tuple[frozenset[str], frozenset[int]]] = {}
        self._ips: set[str] = set()
        self._ports: set[int] = set()
        self._next_ip = self._walk_ips()
        self._next_port = self._walk_ports()

    def hold(self, key: str, service: Object) -> None:
        """Record the addresses of a stored Service, replacing its previous ones."""
        self.release(key)
        spec = service.get("spec") or {}
        ips = frozenset(ip for ip in spec.get("clusterIPs") or [spec.get("clusterIP")] if ip and ip != "None")
        ports = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
        if spec.get("healthCheckNodePort"):
            ports.add(spec["healthCheckNodePort"])
        self._holders[key] = ips, frozenset(ports)
        self._ips |= ips
        self._ports |= ports

    def release(self, key: str) -> None:
        """Release the addresses of a Service."""
        ips, ports = self._holders.pop(key, (frozenset(), frozenset()))
        self._ips -= ips
        self._ports -= ports

    def held_by(self, key: str) -> frozenset[int]:
        """Return the node ports of a stored Service."""
        return self._holders.get(key, (frozenset(), frozenset()))[1]

    def new_ip(self) -> str:
        """Return a free cluster IP. Raises AddressError if none is left."""
        for _ in range(self.network.num_addresses):
            ip = next(self._next_ip)
            if ip not in self._ips:
                return ip
        raise AddressError("failed to allocate a serviceIP: range is full")

    def check_ip(self, ip: str) -> None:
        """Raise AddressError if a cluster IP is out of range or taken."""
        if IPv4Address(ip) not in self.network:
            message = f"failed to allocate IP {ip}: the provided network does not match the current range"
            raise AddressError(message)
        if ip in self._ips:
            raise AddressError(f"failed to allocate IP {ip}: provided IP is already allocated")

    def new_port(self, taken: set[int]) -> int:
        """Return a free node port that is not in `taken`. Raises AddressError if none is left."""
        for _ in NODE_PORTS:
            port = next(self._next_port)
            if port not in self._ports and port not in taken:
                return port
        raise AddressError("failed to allocate a nodePort: range is full")

    def check_port(self, port: int, *, own: frozenset[int] = frozenset()) -> None:
        """Raise AddressError if a node port is out of range or taken by another Service."""
        if port not in NODE_PORTS:
            last = NODE_PORTS[-1]
            raise AddressError(
                f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{last}"
            )
        if port in self._ports and port not in own:
            raise AddressError("provided port is already allocated")

    def _walk_ips(self) -> Iterator[str]:
        # The lower part of the range is reserved for explicitly requested addresses, as in kube-apiserver.
        first = int(self.network.network_address)
        reserved = min(256, max(16, self.network.num_addresses // 16))
        while True:
            for offset in range(reserved, self.network.num_addresses - 1):
                yield str(IPv4Address(first + offset))

    def _walk_ports(self) -> Iterator[int]:
        while True:
            yield from NODE_PORTS[86:]

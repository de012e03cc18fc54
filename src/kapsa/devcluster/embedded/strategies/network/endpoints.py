"""Endpoints and EndpointSlices."""

from __future__ import annotations

from ipaddress import ip_address

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    SUBDOMAIN,
    Check,
    at_most,
    each,
    every,
    fields,
    filled,
    given,
    one_of,
    present,
    unique,
)
from kapsa.devcluster.embedded.strategies.generic.networks import ip, reachable
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, required

_PROTOCOL = one_of("SCTP", "TCP", "UDP")
_ADDRESS = fields(ip=every(ip, reachable), hostname=filled(LABEL), nodeName=given(SUBDOMAIN))
_PORT = fields(
    name=filled(LABEL), port=rules.port_number, protocol=present(_PROTOCOL), appProtocol=given(LABEL_KEY)
)


def _subset(subset: Object, path: str) -> list[FieldError]:
    ports = subset.get("ports") or []
    errors: list[FieldError] = []
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    if len(ports) > 1:
        unnamed = [index for index, port in enumerate(ports) if not port.get("name")]
        errors += [required(f"{path}.ports[{index}].name") for index in unnamed]
    return errors + _SUBSET(subset, path)


_SUBSET = fields(addresses=each(_ADDRESS), notReadyAddresses=each(_ADDRESS), ports=each(_PORT))
_SUBSETS = each(_subset)


class EndpointsStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        return _SUBSETS(obj.get("subsets"), "subsets")


def _slice_address(kind: str) -> Check:
    """Return the check of an endpoint's address in a slice of this type."""
    if not kind.startswith("IPv"):
        return _domain_name if kind == "FQDN" else every()

    def check(value: str, path: str) -> list[FieldError]:
        if wrong := ip(value, path):
            return wrong
        errors = reachable(value, path)
        if f"IPv{ip_address(value).version}" != kind:
            # The real server reports the list.
            errors.append(invalid(path.rpartition("[")[0], value, f"must be an {kind} address"))
        return errors

    return check


def _domain_name(value: str, path: str) -> list[FieldError]:
    name = value.removesuffix(".")
    if not name:
        return [required(path)]
    errors = SUBDOMAIN(name, path)
    if not errors and "." not in name:
        errors.append(invalid(path, name, "should be a domain with at least two segments separated by dots"))
    return errors


_ZONES = every(each(fields(name=LABEL_VALUE)), unique("name"))
_NODES = every(each(fields(name=SUBDOMAIN)), unique("name"))
_ENDPOINT = fields(
    nodeName=given(SUBDOMAIN),
    hostname=given(LABEL),
    hints=given(fields(forZones=at_most(8, _ZONES), forNodes=at_most(8, _NODES))),
)
_SLICE_PORT = fields(name=filled(LABEL), protocol=given(_PROTOCOL), appProtocol=given(LABEL_KEY))


def _slice_ports(ports: list[Object], path: str) -> list[FieldError]:
    errors = each(_SLICE_PORT)(ports, path)
    listed = [port.get("name") or "" for port in ports or ()]
    return errors + [
        duplicate(f"{path}[{index}].name", name)
        for index, name in enumerate(listed)
        if name in listed[:index]
    ]


class EndpointSliceStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            if port.get("name") is None:
                port["name"] = ""
            if port.get("protocol") is None:
                port["protocol"] = "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        kind = obj.get("addressType") or ""
        errors = present(one_of("FQDN", "IPv4", "IPv6"))(kind, "addressType")
        errors += at_most(20000, _slice_ports)(obj.get("ports"), "ports")
        addresses = present(each(_slice_address(kind)), detail="must contain at least 1 address")
        endpoint = every(fields(addresses=at_most(100, addresses)), _ENDPOINT)
        return errors + at_most(1000, each(endpoint))(obj.get("endpoints"), "endpoints")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        if obj.get("addressType") == old.get("addressType"):
            return []
        return [invalid("addressType", obj.get("addressType"), "field is immutable")]

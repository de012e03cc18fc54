"""ServiceCIDRs and IPAddresses: validation. The embedded engine allocates from one range of its own."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any, ClassVar

from kapsa.devcluster.embedded.strategies.generic.builtin import CheckedStrategy
from kapsa.devcluster.embedded.strategies.generic.checks import (
    SEGMENT,
    SUBDOMAIN,
    each,
    fields,
    filled,
    present,
)
from kapsa.devcluster.embedded.strategies.generic.networks import canonical_range, is_range
from kapsa.schemas.field_errors import FieldError, invalid, required

__all__ = ["IPAddressStrategy", "ServiceCIDRStrategy"]

_ONE_OF_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def _ranges(ranges: list[str] | None, path: str) -> list[FieldError]:
    if not ranges:
        return [required(path, "at least one CIDR required")]
    if len(ranges) > 2:
        return [invalid(path, {"cidrs": ranges}, "may only hold up to 2 values")]
    errors = each(canonical_range)(ranges, path)
    families = {ip_network(one, strict=False).version for one in ranges if is_range(one)}
    if len(ranges) == 2 and len(families) == 1 and all(map(is_range, ranges)):
        errors.append(invalid(path, ranges, _ONE_OF_EACH))
    return errors


class ServiceCIDRStrategy(CheckedStrategy):
    """Strategy of the ranges that cluster IPs come from."""

    unenforced = "Services get addresses of the default range alone"
    checks: ClassVar = {"spec": fields(cidrs=_ranges)}


_PARENT = fields(
    group=filled(SUBDOMAIN), resource=present(SEGMENT), name=present(SEGMENT), namespace=filled(SEGMENT)
)


def _parent(reference: Any, path: str) -> list[FieldError]:
    return [required(path)] if reference is None else _PARENT(reference, path)


class IPAddressStrategy(CheckedStrategy):
    """Strategy of the records of allocated addresses."""

    unenforced = "the address is not reserved, and Services have no IPAddress objects"
    checks: ClassVar = {"spec": fields(parentRef=_parent)}
    fixed = ("spec.parentRef",)

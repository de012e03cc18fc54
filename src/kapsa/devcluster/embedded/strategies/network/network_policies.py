"""NetworkPolicies: defaults and validation. The embedded engine has no network to enforce them on."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import each, fields, given, one_of
from kapsa.devcluster.embedded.strategies.generic.networks import is_range, range_of_addresses
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required

_TYPES = ("Ingress", "Egress")


class NetworkPolicyStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for port in rule.get("ports") or ():
                if port.get("protocol") is None:
                    port["protocol"] = "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = rules.label_selector(spec.get("podSelector") or {}, "spec.podSelector")
        errors += _RULES(spec, "spec")
        types = spec.get("policyTypes") or []
        if len(types) > len(_TYPES):
            errors.append(invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
            return errors
        return errors + [
            not_supported(f"spec.policyTypes[{index}]", kind, _TYPES)
            for index, kind in enumerate(types)
            if kind not in _TYPES
        ]


def _port(port: Object, path: str) -> list[FieldError]:
    first, last = port.get("port"), port.get("endPort")
    errors = given(one_of("TCP", "UDP", "SCTP"))(port.get("protocol"), f"{path}.protocol")
    if isinstance(first, int):
        errors += rules.port_number(first, f"{path}.port")
        if last is not None:
            if last < first:
                # The real server shows the value of the other field.
                errors.append(invalid(f"{path}.endPort", first, "must be greater than or equal to `port`"))
            errors += rules.port_number(last, f"{path}.endPort")
        return errors
    if last is not None:
        state = "not specified" if first is None else "non-numeric"
        errors.append(invalid(f"{path}.endPort", last, f"may not be specified when `port` is {state}"))
    return errors if first is None else errors + rules.port_name(first, f"{path}.port")


def _peer(peer: Object, path: str) -> list[FieldError]:
    errors = _PEER(peer, path)
    given_fields = [
        field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None
    ]
    if not given_fields:
        errors.append(required(path, "must specify a peer"))
    elif "ipBlock" in given_fields and len(given_fields) > 1:
        errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return errors


def _block(block: Object, path: str) -> list[FieldError]:
    whole = block.get("cidr")
    if not whole:
        return [required(f"{path}.cidr")]
    if not is_range(whole):
        return range_of_addresses(whole, f"{path}.cidr")
    errors: list[FieldError] = []
    for index, part in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        errors += range_of_addresses(part, where)
        if is_range(part) and not _is_strict_part(part, whole):
            errors.append(invalid(where, part, "must be a strict subset of `cidr`"))
    return errors


def _is_strict_part(part: str, whole: str) -> bool:
    inner: Any = ip_network(part, strict=False)
    outer: Any = ip_network(whole, strict=False)
    return inner.version == outer.version and inner != outer and bool(inner.subnet_of(outer))


_PEER = fields(
    podSelector=given(rules.label_selector),
    namespaceSelector=given(rules.label_selector),
    ipBlock=given(_block),
)
_RULES = fields(
    ingress=each(fields(**{"ports": each(_port), "from": each(_peer)})),
    egress=each(fields(ports=each(_port), to=each(_peer))),
)

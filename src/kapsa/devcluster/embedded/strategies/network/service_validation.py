"""Validation of Services."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL_KEY,
    each,
    every,
    fields,
    given,
    one_of,
    unique,
)
from kapsa.devcluster.embedded.strategies.generic.networks import NOT_A_RANGE, ip, is_range, reachable
from kapsa.schemas.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)

Object = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_LONGEST_AFFINITY = 86400
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")


def validate_service(obj: Object) -> list[FieldError]:
    """Return the errors in a Service."""
    spec = obj["spec"]
    errors: list[FieldError] = []
    kind, address = spec.get("type"), spec.get("clusterIP") or ""
    ports = spec.get("ports") or []
    headless = address == "None"
    if not ports and not headless and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind == "LoadBalancer" and headless:
        errors.append(
            invalid(
                "spec.clusterIPs[0]",
                spec.get("clusterIPs"),
                "may not be set to 'None' for LoadBalancer services",
            )
        )
    if kind == "NodePort" and headless:
        errors.append(
            invalid(
                "spec.clusterIPs[0]", spec.get("clusterIPs"), "may not be set to 'None' for NodePort services"
            )
        )
    if kind == "ExternalName":
        errors += _external_name(spec)
    errors += _ports(ports)
    if spec.get("selector"):
        errors += rules.labels(spec["selector"], "spec.selector")
    if spec.get("sessionAffinity") not in ("ClientIP", "None"):
        errors.append(
            not_supported("spec.sessionAffinity", spec.get("sessionAffinity"), ["ClientIP", "None"])
        )
    if spec.get("sessionAffinity") == "ClientIP":
        errors += _AFFINITY(spec.get("sessionAffinityConfig"), "spec.sessionAffinityConfig")
    errors += _cluster_ip(spec, address)
    if kind != "ExternalName":
        errors += _FAMILIES(spec, "spec")
    errors += _DETAILS(spec, "spec")
    if kind not in _TYPES:
        errors.append(not_supported("spec.type", kind, _TYPES))
    errors += _port_conflicts(spec, ports)
    errors += _load_balancer_fields(spec)
    errors += _traffic_policies(spec)
    return errors


def _load_balancer_fields(spec: Object) -> list[FieldError]:
    if spec.get("type") == "LoadBalancer":
        ranges = [given_range.strip() for given_range in spec.get("loadBalancerSourceRanges") or ()]
        errors = [
            invalid(f"spec.LoadBalancerSourceRanges[{index}]", each_range, NOT_A_RANGE)
            for index, each_range in enumerate(ranges)
            if not is_range(each_range)
        ]
        return errors + given(LABEL_KEY)(spec.get("loadBalancerClass"), "spec.loadBalancerClass")
    detail = "may only be used when `type` is 'LoadBalancer'"
    only_here = {
        "loadBalancerSourceRanges": "spec.LoadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts": "spec.allocateLoadBalancerNodePorts",
        "loadBalancerClass": "spec.loadBalancerClass",
    }
    return [
        forbidden(path, detail) for field, path in only_here.items() if spec.get(field) not in (None, [], "")
    ]


def _external_name(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec.get("clusterIPs"):
        errors.append(forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
    name = (spec.get("externalName") or "").rstrip(".")
    if not name:
        errors.append(required("spec.externalName"))
    else:
        errors += rules.dns_subdomain(name, "spec.externalName")
    return errors


def _ports(ports: list[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name") or ""
        if not name and len(ports) > 1:
            errors.append(required(f"{path}.name"))
        elif name:
            errors += rules.dns_label(name, f"{path}.name")
            if name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
        errors += rules.port_number(port.get("port", 0), f"{path}.port")
        if port.get("protocol") not in _PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS))
        errors += rules.port_number_or_name(port.get("targetPort", 0), f"{path}.targetPort")
    return errors


def _port_conflicts(spec: Object, ports: list[Object]) -> list[FieldError]:
    """Return the errors for node ports that the type does not allow, and for duplicate ports."""
    errors: list[FieldError] = []
    if spec.get("type") == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                where = f"spec.ports[{index}].nodePort"
                errors.append(forbidden(where, "may not be used when `type` is 'ClusterIP'"))
    seen: set[tuple[Any, Any]] = set()
    node_ports: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        held = (port.get("protocol"), port.get("nodePort"))
        if port.get("nodePort"):
            if held in node_ports:
                errors.append(duplicate(f"spec.ports[{index}].nodePort", port["nodePort"]))
            node_ports.add(held)
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            shown = (
                ("Name", ""),
                ("Protocol", key[0]),
                ("AppProtocol", None),
                ("Port", key[1]),
                ("TargetPort", 0),
                ("NodePort", 0),
            )
            errors.append(rules.printed(duplicate(f"spec.ports[{index}]", port), *shown))
        seen.add(key)
    return errors


def _cluster_ip(spec: Object, address: str) -> list[FieldError]:
    if not address or address == "None" or spec.get("type") == "ExternalName":
        return []
    return ip(address, "spec.clusterIPs[0]")


_FAMILIES = fields(
    ipFamilies=every(each(one_of("IPv4", "IPv6")), unique()),
    ipFamilyPolicy=given(one_of("PreferDualStack", "RequireDualStack", "SingleStack")),
)


def _external_ip(value: str, path: str) -> list[FieldError]:
    return ip(value, path) or reachable(value, path)


def _affinity_timeout(value: Any, path: str) -> list[FieldError]:
    if 0 < value <= _LONGEST_AFFINITY:
        return []
    return [invalid(path, value, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")]


_DETAILS = fields(
    externalIPs=each(_external_ip),
    trafficDistribution=given(one_of(*_DISTRIBUTIONS)),
    ports=each(fields(appProtocol=given(LABEL_KEY))),
)
_AFFINITY = fields(clientIP=fields(timeoutSeconds=given(_affinity_timeout)))


def _traffic_policies(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = spec.get("type")
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    policy = spec.get("externalTrafficPolicy")
    if policy and not external:
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", policy, detail))
    elif external and policy not in ("Cluster", "Local"):
        errors.append(not_supported("spec.externalTrafficPolicy", policy, ["Cluster", "Local"]))
    if spec.get("healthCheckNodePort") and (spec.get("type") != "LoadBalancer" or policy != "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], detail))
    inner = spec.get("internalTrafficPolicy")
    if inner not in (None, "Cluster", "Local"):
        errors.append(not_supported("spec.internalTrafficPolicy", inner, ["Cluster", "Local"]))
    return errors

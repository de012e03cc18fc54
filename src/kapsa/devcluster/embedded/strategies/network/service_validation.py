"""Validation of Services."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
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
_NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def validate_service(obj: Object) -> list[FieldError]:
    """Return the errors in a Service."""
    spec = obj["spec"]
    errors: list[FieldError] = []
    kind, ip = spec.get("type"), spec.get("clusterIP") or ""
    ports = spec.get("ports") or []
    headless = ip == "None"
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
    errors += _cluster_ip(spec, ip)
    if kind not in _TYPES:
        errors.append(not_supported("spec.type", kind, _TYPES))
    errors += _port_conflicts(spec, ports)
    errors += _load_balancer_fields(spec)
    errors += _traffic_policies(spec)
    return errors


def _load_balancer_fields(spec: Object) -> list[FieldError]:
    if spec.get("type") == "LoadBalancer":
        return [
            invalid(f"spec.LoadBalancerSourceRanges[{index}]", given, _NOT_A_CIDR)
            for index, given in enumerate(spec.get("loadBalancerSourceRanges") or ())
            if not _is_range(given)
        ]
    detail = "may only be used when `type` is 'LoadBalancer'"
    fields = {
        "loadBalancerSourceRanges": "spec.LoadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts": "spec.allocateLoadBalancerNodePorts",
        "loadBalancerClass": "spec.loadBalancerClass",
    }
    return [
        forbidden(path, detail) for field, path in fields.items() if spec.get(field) not in (None, [], "")
    ]


def _is_range(text: str) -> bool:
    try:
        ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return "/" in text


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


def _cluster_ip(spec: Object, ip: str) -> list[FieldError]:
    if not ip or ip == "None" or spec.get("type") == "ExternalName":
        return []
    try:
        ip_address(ip)
    except ValueError:
        detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [invalid("spec.clusterIPs[0]", ip, detail)]
    return []


def _traffic_policies(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    external = spec.get("type") in ("NodePort", "LoadBalancer") or spec.get("externalIPs")
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

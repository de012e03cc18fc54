"""The printers of Services, their endpoints, Ingresses and NetworkPolicies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import (
    Object,
    age,
    dig,
    labels,
    printer,
    selector,
    shortened,
)

__all__ = ["PRINTERS"]

_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or "<none>"]
    ports = ",".join(_port(port) for port in spec.get("ports") or ())
    return [
        obj["metadata"]["name"],
        spec.get("type", ""),
        addresses[0],
        _external(obj),
        ports or "<none>",
        age(obj, now),
        labels(spec.get("selector")),
    ]


def _port(port: Object) -> str:
    number = f"{port['port']}:{port['nodePort']}" if port.get("nodePort") else str(port["port"])
    return f"{number}/{port.get('protocol', 'TCP')}"


def _external(obj: Object) -> str:
    spec = obj.get("spec") or {}
    given = spec.get("externalIPs") or []
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    if spec.get("type") == "LoadBalancer":
        return ",".join([*_balancer(obj), *given]) or "<pending>"
    return ",".join(given) or "<none>"


def _balancer(obj: Object) -> list[str]:
    names = {
        entry.get("ip") or entry.get("hostname")
        for entry in dig(obj, "status", "loadBalancer", "ingress") or ()
    }
    return sorted(name for name in names if name)


def _endpoints(obj: Object, now: datetime) -> list[Any]:
    addresses = list(_addresses(obj))
    text = shortened(addresses) if addresses else "<none>"
    if not addresses and obj.get("subsets"):
        text = ""
    return [obj["metadata"]["name"], text, age(obj, now)]


def _addresses(obj: Object) -> Iterator[str]:
    for subset in obj.get("subsets") or ():
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            yield from addresses
        for port in ports:
            for address in addresses:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{port['port']}"


def _endpoint_slice(obj: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [address for item in obj.get("endpoints") or () for address in item.get("addresses") or ()]
    shown = [shortened(ports), shortened(addresses)]
    return [obj["metadata"]["name"], obj.get("addressType", ""), *shown, age(obj, now)]


def _ingress(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    return [
        obj["metadata"]["name"],
        spec.get("ingressClassName") or "<none>",
        shortened(hosts) if hosts else "*",
        ",".join(_balancer(obj)),
        "80, 443" if spec.get("tls") else "80",
        age(obj, now),
    ]


def _ingress_class(obj: Object, now: datetime) -> list[Any]:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    default = (metadata.get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    parameters = spec.get("parameters")
    shown = "<none>"
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        shown = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    name = f"{metadata['name']} (default)" if default else metadata["name"]
    return [name, spec.get("controller", ""), shown, age(obj, now)]


def _network_policy(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], selector(dig(obj, "spec", "podSelector")), age(obj, now)]


def _service_cidr(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], ",".join(dig(obj, "spec", "cidrs") or ()), age(obj, now)]


def _ip_address(obj: Object, now: datetime) -> list[Any]:
    # The real server writes an age under no header, too.
    return [obj["metadata"]["name"], _parent(dig(obj, "spec", "parentRef")), age(obj, now)]


def _parent(reference: Object | None) -> str:
    if reference is None:
        return "<none>"
    resource, group = reference.get("resource", ""), reference.get("group", "")
    parts = [f"{resource}.{group}".lower() if group else resource.lower(), reference.get("namespace", "")]
    return "/".join([*filter(None, parts), reference.get("name", "")])


PRINTERS = {
    ("", "services"): printer("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector+", _service),
    ("", "endpoints"): printer("Name, Endpoints, Age", _endpoints),
    ("discovery.k8s.io", "endpointslices"): printer(
        "Name, AddressType, Ports, Endpoints, Age", _endpoint_slice
    ),
    ("networking.k8s.io", "ingresses"): printer("Name, Class, Hosts, Address, Ports, Age", _ingress),
    ("networking.k8s.io", "ingressclasses"): printer("Name, Controller, Parameters, Age", _ingress_class),
    ("networking.k8s.io", "networkpolicies"): printer("Name, Pod-Selector, Age", _network_policy),
    ("networking.k8s.io", "ipaddresses"): printer("Name, ParentRef", _ip_address),
    ("networking.k8s.io", "servicecidrs"): printer("Name, CIDRs, Age", _service_cidr),
}

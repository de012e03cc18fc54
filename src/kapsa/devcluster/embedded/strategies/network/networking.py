"""Ingresses, IngressClasses and NetworkPolicies."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_IN_PATH = ("//", "/./", "/../", "%2f", "%2F")
_AT_END = ("/..", "/.")


class IngressStrategy(BuiltInStrategy):
    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"loadBalancer": {}}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if not spec.get("rules") and spec.get("defaultBackend") is None:
            errors.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
        if spec.get("defaultBackend") is not None:
            errors += _backend(spec["defaultBackend"], "spec.defaultBackend")
        for index, rule in enumerate(spec.get("rules") or ()):
            errors += _rule(rule, f"spec.rules[{index}]")
        for index, tls in enumerate(spec.get("tls") or ()):
            for position, host in enumerate(tls.get("hosts") or ()):
                errors += _host(host, f"spec.tls[{index}].hosts[{position}]")
        if spec.get("ingressClassName"):
            errors += rules.dns_subdomain(spec["ingressClassName"], "spec.ingressClassName")
        return errors


def _rule(rule: Object, path: str) -> list[FieldError]:
    errors = _host(rule["host"], f"{path}.host") if rule.get("host") else []
    http = rule.get("http")
    if http is None:
        return errors
    if not http.get("paths"):
        errors.append(required(f"{path}.http.paths"))
    for index, entry in enumerate(http.get("paths") or ()):
        errors += _path(entry, f"{path}.http.paths[{index}]")
    return errors


def _host(host: str, path: str) -> list[FieldError]:
    if host.startswith("*."):
        return [invalid(path, host, p) for p in names.dns1123_subdomain(host[2:])]
    return [invalid(path, host, problem) for problem in names.dns1123_subdomain(host)]


def _path(entry: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kind, value = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        return [required(f"{path}.pathType", "pathType must be specified")]
    if kind in ("Exact", "Prefix"):
        if not value.startswith("/"):
            errors.append(invalid(f"{path}.path", value, "must be an absolute path"))
        else:
            errors += [
                invalid(f"{path}.path", value, f"must not contain '{part}'")
                for part in _IN_PATH
                if part in value
            ]
            errors += [
                invalid(f"{path}.path", value, f"cannot end with '{part}'")
                for part in _AT_END
                if value.endswith(part)
            ]
    elif kind == "ImplementationSpecific":
        if value and not value.startswith("/"):
            errors.append(invalid(f"{path}.path", value, "must be an absolute path"))
    else:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    return errors + _backend(entry.get("backend") or {}, f"{path}.backend")


def _backend(backend: Object, path: str) -> list[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return []
    if service is None:
        return [invalid(path, "", "resource or service backend is required")]
    errors: list[FieldError] = []
    where, port = f"{path}.service", service.get("port") or {}
    if not service.get("name"):
        errors.append(required(f"{where}.name"))
    else:
        errors += [invalid(f"{where}.name", service["name"], p) for p in names.dns1123_label(service["name"])]
    if port.get("name") and port.get("number"):
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        errors += rules.port_name(port["name"], f"{where}.port.name")
    elif port.get("number"):
        errors += rules.port_number(port["number"], f"{where}.port.number")
    else:
        errors.append(required(path, "port name or number is required"))
    return errors


class IngressClassStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def validate(self, obj: Object) -> list[FieldError]:
        return [] if (obj.get("spec") or {}).get("controller") else [required("spec.controller")]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        after, before = obj["spec"].get("controller"), old["spec"].get("controller")
        return [] if after == before else [invalid("spec.controller", after, "field is immutable")]


class NetworkPolicyStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for port in rule.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = rules.label_selector(spec.get("podSelector") or {}, "spec.podSelector")
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(spec.get(direction) or ()):
                for position, peer in enumerate(rule.get(peers) or ()):
                    errors += _peer(peer, f"spec.{direction}[{index}].{peers}[{position}]")
        for index, kind in enumerate(spec.get("policyTypes") or ()):
            if kind not in ("Egress", "Ingress"):
                errors.append(not_supported(f"spec.policyTypes[{index}]", kind, ["Ingress", "Egress"]))
        return errors


def _peer(peer: Object, path: str) -> list[FieldError]:
    given = [
        field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None
    ]
    if not given:
        return [required(path, "must specify a peer")]
    if "ipBlock" in given and len(given) > 1:
        return [forbidden(path, "may not specify both ipBlock and another peer")]
    return []

"""Ingresses and IngressClasses."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SEGMENT,
    SUBDOMAIN,
    domain_prefixed_path,
    fields,
    filled,
    given,
    one_of,
    present,
)
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long

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
            errors += filled(SUBDOMAIN)(tls.get("secretName"), f"spec.tls[{index}].secretName")
        return errors + given(SUBDOMAIN)(spec.get("ingressClassName"), "spec.ingressClassName")


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
        return _RESOURCE(resource, f"{path}.resource")
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


_RESOURCE = fields(apiGroup=given(SUBDOMAIN), kind=present(SEGMENT), name=present(SEGMENT))


_SCOPES = ("Cluster", "Namespace")
_LONGEST_CONTROLLER = 250


def _controller(name: str | None, path: str) -> list[FieldError]:
    long = [too_long(path, _LONGEST_CONTROLLER)] if len(name or "") > _LONGEST_CONTROLLER else []
    return long + domain_prefixed_path(name, path)


def _class_parameters(parameters: Object, path: str) -> list[FieldError]:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    errors = _RESOURCE(parameters, path) + one_of(*_SCOPES)(scope, f"{path}.scope")
    where, detail = f"{path}.namespace", f"`parameters.scope` is set to '{scope}'"
    if scope == "Namespace":
        errors += [required(where, detail)] if namespace is None else LABEL(namespace, where)
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden(where, detail))
    return errors


_CLASS = fields(controller=_controller, parameters=given(_class_parameters))


class IngressClassStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def validate(self, obj: Object) -> list[FieldError]:
        return _CLASS(obj.get("spec"), "spec")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        after, before = obj["spec"].get("controller"), old["spec"].get("controller")
        return [] if after == before else [invalid("spec.controller", after, "field is immutable")]

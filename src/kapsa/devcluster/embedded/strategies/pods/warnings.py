"""Advice about pod specs that comes with success: what is taken, but will hardly do what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.schemas.go_format import quote
from kapsa.schemas.quantities import parse

__all__ = ["name_warnings", "pod_spec_warnings"]

Object = dict[str, Any]
_WHOLE = ("memory", "ephemeral-storage")
_NO_POD = "a null labelSelector results in matching no pod"


def name_warnings(name: str, use: str) -> list[str]:
    """What follows from a name that is no DNS label; `use` says what else is named by it."""
    problems = names.dns1123_label(name)
    if not problems:
        return []
    consequence = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {use}, {consequence}: [{' '.join(problems)}]"]


def pod_spec_warnings(spec: Object, path: str) -> list[str]:
    """All advice about a defaulted pod spec, in the order of the real server; `path` is the spec's."""
    found = [
        f"{path}.topologySpreadConstraints[{index}].labelSelector: {_NO_POD}"
        for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ())
        if constraint.get("labelSelector") is None
    ]
    found += _duplicates(spec, path, "hostAliases", "ip")
    found += _duplicates(spec, path, "imagePullSecrets", "name")
    found += [
        f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
        for index, secret in enumerate(spec.get("imagePullSecrets") or ())
        if not secret.get("name")
    ]
    for container, where in _containers(spec, path):
        found += _fractions(container, where)
        found += _hidden_variables(container, where)
    found += _ports(spec, path)
    found += _port_names(spec, path)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{path}.terminationGracePeriodSeconds: {text}")
    return found + _affinities(spec, path)


def _containers(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield container, f"{path}.{field}[{index}]"


def _duplicates(spec: Object, path: str, field: str, key: str) -> list[str]:
    found, seen = [], set()
    for index, item in enumerate(spec.get(field) or ()):
        value = item.get(key) or ""
        if value in seen:
            found.append(f"{path}.{field}[{index}].{key}: duplicate {key} {quote(value)}")
        seen.add(value)
    return found


def _fractions(container: Object, path: str) -> list[str]:
    resources = container.get("resources") or {}
    found = []
    for name in _WHOLE:
        for field in ("limits", "requests"):
            amount = (resources.get(field) or {}).get(name)
            if amount is not None and parse(amount) % 1:
                text = f"fractional byte value {quote(str(amount))} is invalid, must be an integer"
                found.append(f"{path}.resources.{field}[{name}]: {text}")
    return found


def _hidden_variables(container: Object, path: str) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable["name"], variable.get("value") or ""
        reference = f"$({name})"
        extends = variable.get("valueFrom") is None and value != reference and reference in value
        if name in seen and not extends:
            text = f"hides previous definition of {quote(name)}, which may be dropped when using apply"
            found.append(f"{path}.env[{index}]: {text}")
        seen.add(name)
    return found


def _ports(spec: Object, path: str) -> list[str]:
    found: list[str] = []
    seen: dict[tuple[int, str], list[tuple[str, Object]]] = {}
    for container, where in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            here = f"{where}.ports[{index}]"
            others = seen.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            for there, other in others:
                if clash := _clash(port, other):
                    found.append(f"{here}: {clash} port definition with {there}")
            others.append((here, port))
    return found


def _clash(port: Object, other: Object) -> str:
    """How two definitions of one port get along; empty if well."""
    ip, host = port.get("hostIP") or "", port.get("hostPort") or 0
    other_ip, other_host = other.get("hostIP") or "", other.get("hostPort") or 0
    if (ip, host) == (other_ip, other_host):
        return "duplicate"
    if not host or not other_host:
        return "overlapping"
    return "dangerously ambiguous" if host == other_host and bool(ip) != bool(other_ip) else ""


def _port_names(spec: Object, path: str) -> list[str]:
    found: list[str] = []
    seen: dict[str, str] = {}
    for container, where in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            name, here = port.get("name"), f"{where}.ports[{index}]"
            if name and seen.setdefault(name, here) != here:
                first = seen[name]
                text = f"services and probes that select ports by name will use {first}"
                found.append(f"{here}: duplicate port name {quote(name)} with {first}, {text}")
    return found


def _affinities(spec: Object, path: str) -> list[str]:
    found = []
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        where = f"{path}.affinity.{kind}"
        required, preferred = (
            f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
        )
        for index, term in enumerate(affinity.get(required) or ()):
            if term.get("labelSelector") is None:
                found.append(f"{where}.{required}[{index}].labelSelector: {_NO_POD}")
        for index, term in enumerate(affinity.get(preferred) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                found.append(f"{where}.{preferred}[{index}].podAffinityTerm.labelSelector: {_NO_POD}")
    return found

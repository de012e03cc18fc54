"""Warnings about pod specs that are accepted but probably do not do what was intended."""

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
    """Return the warning about a name that is not a DNS label; `use` lists what the name is used for."""
    problems = names.dns1123_label(name)
    if not problems:
        return []
    consequence = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {use}, {consequence}: [{' '.join(problems)}]"]


def pod_spec_warnings(spec: Object, path: str) -> list[str]:
    """Return the warnings about a defaulted pod spec at `path`, in kube-apiserver's order."""
    warnings = [
        f"{path}.topologySpreadConstraints[{index}].labelSelector: {_NO_POD}"
        for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ())
        if constraint.get("labelSelector") is None
    ]
    warnings += _duplicates(spec, path, "hostAliases", "ip")
    warnings += _duplicates(spec, path, "imagePullSecrets", "name")
    warnings += [
        f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
        for index, secret in enumerate(spec.get("imagePullSecrets") or ())
        if not secret.get("name")
    ]
    for container, where in _containers(spec, path):
        warnings += _fractions(container, where)
        warnings += _hidden_variables(container, where)
    warnings += _ports(spec, path)
    warnings += _port_names(spec, path)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        warnings.append(f"{path}.terminationGracePeriodSeconds: {text}")
    return warnings + _affinities(spec, path)


def _containers(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield container, f"{path}.{field}[{index}]"


def _duplicates(spec: Object, path: str, field: str, key: str) -> list[str]:
    warnings, seen = [], set()
    for index, item in enumerate(spec.get(field) or ()):
        value = item.get(key) or ""
        if value in seen:
            warnings.append(f"{path}.{field}[{index}].{key}: duplicate {key} {quote(value)}")
        seen.add(value)
    return warnings


def _fractions(container: Object, path: str) -> list[str]:
    resources = container.get("resources") or {}
    warnings = []
    for name in _WHOLE:
        for field in ("limits", "requests"):
            amount = (resources.get(field) or {}).get(name)
            if amount is not None and parse(amount) % 1:
                text = f"fractional byte value {quote(str(amount))} is invalid, must be an integer"
                warnings.append(f"{path}.resources.{field}[{name}]: {text}")
    return warnings


def _hidden_variables(container: Object, path: str) -> list[str]:
    warnings: list[str] = []
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable["name"], variable.get("value") or ""
        reference = f"$({name})"
        extends = variable.get("valueFrom") is None and value != reference and reference in value
        if name in seen and not extends:
            text = f"hides previous definition of {quote(name)}, which may be dropped when using apply"
            warnings.append(f"{path}.env[{index}]: {text}")
        seen.add(name)
    return warnings


def _ports(spec: Object, path: str) -> list[str]:
    warnings: list[str] = []
    seen: dict[tuple[int, str], list[tuple[str, Object]]] = {}
    for container, where in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            here = f"{where}.ports[{index}]"
            others = seen.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            for there, other in others:
                if conflict := _conflict(port, other):
                    warnings.append(f"{here}: {conflict} port definition with {there}")
            others.append((here, port))
    return warnings


def _conflict(port: Object, other: Object) -> str:
    """Return the kind of conflict between two definitions of a port; empty if there is none."""
    ip, host = port.get("hostIP") or "", port.get("hostPort") or 0
    other_ip, other_host = other.get("hostIP") or "", other.get("hostPort") or 0
    if (ip, host) == (other_ip, other_host):
        return "duplicate"
    if not host or not other_host:
        return "overlapping"
    return "dangerously ambiguous" if host == other_host and bool(ip) != bool(other_ip) else ""


def _port_names(spec: Object, path: str) -> list[str]:
    warnings: list[str] = []
    seen: dict[str, str] = {}
    for container, where in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            name, here = port.get("name"), f"{where}.ports[{index}]"
            if name and seen.setdefault(name, here) != here:
                first = seen[name]
                text = f"services and probes that select ports by name will use {first}"
                warnings.append(f"{here}: duplicate port name {quote(name)} with {first}, {text}")
    return warnings


def _affinities(spec: Object, path: str) -> list[str]:
    warnings = []
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        where = f"{path}.affinity.{kind}"
        required, preferred = (
            f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
        )
        for index, term in enumerate(affinity.get(required) or ()):
            if term.get("labelSelector") is None:
                warnings.append(f"{where}.{required}[{index}].labelSelector: {_NO_POD}")
        for index, term in enumerate(affinity.get(preferred) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                warnings.append(f"{where}.{preferred}[{index}].podAffinityTerm.labelSelector: {_NO_POD}")
    return warnings

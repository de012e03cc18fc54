"""The scopes of a quota: which pods and claims it counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.strategies.pods.quality import quality_of_service

__all__ = ["in_scopes", "is_terminating"]

Object = dict[str, Any]


def in_scopes(quota: Object, resource: str, obj: Object) -> bool:
    """Return whether an object is in all scopes of a quota; one without scopes counts every object."""
    spec = quota.get("spec") or {}
    selectors = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    selectors += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if resource == "pods":
        return all(_holds_for_pod(selector, obj) for selector in selectors)
    if resource == "persistentvolumeclaims":
        return all(_holds_for_claim(selector, obj) for selector in selectors)
    return not selectors


def is_terminating(pod: Object) -> bool:
    """Return whether a pod has a deadline."""
    deadline = pod["spec"].get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def _holds_for_pod(selector: Object, pod: Object) -> bool:
    match selector["scopeName"]:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return quality_of_service(pod["spec"]) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(pod["spec"]) != "BestEffort"
        case "PriorityClass":
            return _selects(selector, pod["spec"].get("priorityClassName"))
        case "CrossNamespacePodAffinity":
            return any(
                term.get("namespaces") or term.get("namespaceSelector") is not None
                for term in _affinity_terms(pod)
            )
        case _:
            return False


def _holds_for_claim(selector: Object, claim: Object) -> bool:
    if selector["scopeName"] != "VolumeAttributesClass":
        return False
    status = claim.get("status") or {}
    names = [
        claim["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    ]
    return any(_selects(selector, name) for name in names if name) or (
        not any(names) and selector["operator"] in ("DoesNotExist", "NotIn")
    )


def _selects(selector: Object, name: str | None) -> bool:
    scope = selector["scopeName"]
    expression = {"key": scope, "operator": selector["operator"], "values": selector.get("values") or []}
    return matches({"matchExpressions": [expression]}, {scope: name} if name else {})


def _affinity_terms(pod: Object) -> Iterator[Object]:
    affinity = pod["spec"].get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}

"""Usage: the amounts that each kind of object takes from a quota, by the names of the quota's resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.pod_amounts import pod_amounts
from kapsa.schemas.quantities import add, canonical, parse

__all__ = ["IGNORED", "Evaluator", "Usage", "evaluator_of", "sum_usage"]

Object = dict[str, Any]
Usage = dict[str, str]

IGNORED = frozenset(
    {
        ("", "bindings"),
        ("", "componentstatuses"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("", "events"),
        ("events.k8s.io", "events"),
    }
)
"""Resources that no quota counts."""

_ALIASES = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_POD_NAMES = frozenset(
    {
        "count/pods",
        "pods",
        *_COMPUTE,
        *(f"{field}.{name}" for field in ("requests", "limits") for name in _COMPUTE),
    }
)
_SERVICE_NAMES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_NAMES = ("persistentvolumeclaims", "requests.storage")
_BY_CLASS = ".storageclass.storage.k8s.io/"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_REQUIRED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


class Evaluator(msgspec.Struct, frozen=True):
    """The way in which the objects of one resource are counted."""

    matches: Callable[[str], bool]
    """Returns whether a resource of a quota is about these objects."""
    usage: Callable[[Object, datetime], Usage]
    """Returns what one object uses."""
    counts_updates: bool = False
    """True if an update can change what an object uses."""
    missing: Callable[[Object, Iterable[str]], str] = lambda obj, names: ""
    """Returns the error for an object that does not set what the named resources require, "" if it does."""


def evaluator_of(group: str, resource: str) -> Evaluator:
    """Return the evaluator of a resource."""
    special = _SPECIAL.get((group, resource))
    if special is not None:
        return special
    names = [f"count/{resource}.{group}" if group else f"count/{resource}"]
    if not group and resource in _ALIASES:
        names.append(resource)
    return Evaluator(matches=names.__contains__, usage=lambda obj, now: dict.fromkeys(names, "1"))


def sum_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum of two usages."""
    total = dict(first)
    for name, amount in second.items():
        total[name] = add(total[name], amount) if name in total else amount
    return total


# Pods


def _pod_usage(pod: Object, now: datetime) -> Usage:
    usage: Usage = {"count/pods": "1"}
    if not _is_charged(pod, now):
        return usage
    requests = pod_amounts(pod["spec"], "requests", overhead=True)
    limits = pod_amounts(pod["spec"], "limits", overhead=True)
    return {**usage, **_compute_usage(requests, limits)}


def _is_charged(pod: Object, now: datetime) -> bool:
    """Return whether a pod counts: it has not ended, and its deletion is not overdue."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = pod["metadata"]
    deleted, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if not deleted or grace is None:
        return True
    return now <= datetime.fromisoformat(deleted) + timedelta(seconds=grace)


def _compute_usage(requests: Usage, limits: Usage) -> Usage:
    usage: Usage = {"pods": "1"}
    for name in _COMPUTE:
        if name in requests:
            usage[name] = usage[f"requests.{name}"] = canonical(requests[name])
        if name in limits:
            usage[f"limits.{name}"] = canonical(limits[name])
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            usage[name] = amount
        if name.startswith("hugepages-") or _is_extended(name):
            usage[f"requests.{name}"] = amount
    return usage


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _matches_pod(name: str) -> bool:
    if name in _POD_NAMES or name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and "/" in name and "kubernetes.io/" not in name


def _missing_of_pod(pod: Object, names: Iterable[str]) -> str:
    """Return the error for containers without the requests or limits that a quota counts."""
    spec = pod["spec"]
    if any((spec.get("resources") or {}).get(field) for field in ("requests", "limits")):
        return ""
    required = _REQUIRED.intersection(names)
    missing: dict[str, set[str]] = {}
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            usage = _compute_usage(resources.get("requests") or {}, resources.get("limits") or {})
            for name in required - usage.keys():
                missing.setdefault(name, set()).add(container["name"])
    if not missing:
        return ""
    texts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
    return f"must specify {'; '.join(texts)}"


# Services


def _service_usage(service: Object, now: datetime) -> Usage:
    spec = service["spec"]
    ports = spec.get("ports") or []
    kind = spec.get("type")
    counted = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        counted = sum(bool(port.get("nodePort")) for port in ports)
    return {
        "count/services": "1",
        "services": "1",
        "services.loadbalancers": "1" if kind == "LoadBalancer" else "0",
        "services.nodeports": str(counted),
    }


# Claims


def _claim_usage(claim: Object, now: datetime) -> Usage:
    usage: Usage = {"persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"}
    annotations = claim["metadata"].get("annotations") or {}
    class_name = annotations.get(_CLASS_ANNOTATION) or claim["spec"].get("storageClassName")
    storage = _storage(claim)
    if storage is not None:
        usage["requests.storage"] = storage
    if class_name:
        usage |= {f"{class_name}{_BY_CLASS}{name}": usage[name] for name in _CLAIM_NAMES if name in usage}
    return usage


def _storage(claim: Object) -> str | None:
    """Return the storage of a claim in whole bytes: what it requests, or what is allocated if that is more."""
    requested = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    if requested is None:
        return None
    allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
    largest: str = max(requested, allocated, key=parse)
    amount = parse(largest)
    return canonical(largest) if amount == int(amount) else str(math.ceil(amount))


def _matches_claim(name: str) -> bool:
    if name == "count/persistentvolumeclaims" or name in _CLAIM_NAMES:
        return True
    return any(name.endswith(f"{_BY_CLASS}{each}") for each in _CLAIM_NAMES)


_SPECIAL = {
    ("", "pods"): Evaluator(_matches_pod, _pod_usage, missing=_missing_of_pod),
    ("", "services"): Evaluator(_SERVICE_NAMES.__contains__, _service_usage, counts_updates=True),
    ("", "persistentvolumeclaims"): Evaluator(_matches_claim, _claim_usage, counts_updates=True),
}

"""Scheduling rules: the nodes and the priority that a repository may ask for.

Nodes are shared with other tenants and with the cluster's own components. By default a repository chooses
neither: a taint keeps its pods out, and no pod of another tenant is evicted for one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from kapsa.adapters.manifests.pod_templates import entries

__all__ = ["SchedulingRules", "scheduling_refusals"]

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_DEFAULT_SCHEDULER = "default-scheduler"
_EVERY_POD = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that Kubernetes lets every pod tolerate for some minutes. A pod may set another time."""


class SchedulingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of nodes and priorities that an administrator allows."""

    node_labels: Collection[str] = ("kubernetes.io/arch", "kubernetes.io/os")
    """Labels by which pods may choose nodes."""
    taints: Collection[str] = ()
    """Keys of taints that pods may tolerate."""
    priority_classes: Collection[str] = ()
    runtime_classes: Collection[str] = ()
    schedulers: Collection[str] = ()
    """Schedulers besides the default one."""


def scheduling_refusals(spec: Mapping[str, Any], rules: SchedulingRules, *, namespace: str) -> Iterator[str]:
    """Yield what is not allowed in the scheduling fields of a pod."""
    if spec.get("nodeName"):
        yield "nodeName would bypass the scheduler"
    yield from _priority(spec, rules)
    yield from _runtime(spec, rules)
    yield from _tolerations(spec, rules)
    for label in _node_labels(spec):
        if label not in rules.node_labels:
            allowed = ", ".join(rules.node_labels) or "none"
            yield f"it chooses nodes by {label}; the labels that it may choose nodes by are: {allowed}"
    yield from _other_namespaces(spec, namespace)


def _priority(spec: Mapping[str, Any], rules: SchedulingRules) -> Iterator[str]:
    name = spec.get("priorityClassName")
    if not name or name in rules.priority_classes:
        return
    if str(name).startswith("system-"):
        yield f"priorityClassName {name} is reserved for the system"
        return
    yield f"priorityClassName {name} is not allowed: its pods could evict those of others. Allowed are: " + (
        ", ".join(rules.priority_classes) or "none"
    )


def _runtime(spec: Mapping[str, Any], rules: SchedulingRules) -> Iterator[str]:
    name, scheduler = spec.get("runtimeClassName"), spec.get("schedulerName")
    if name and name not in rules.runtime_classes:
        allowed = ", ".join(rules.runtime_classes) or "none"
        yield (
            f"runtimeClassName {name} is not allowed: it brings a runtime, nodes and tolerations of its own. Allowed "
            f"are: {allowed}"
        )
    if scheduler and scheduler not in (_DEFAULT_SCHEDULER, *rules.schedulers):
        allowed = ", ".join((_DEFAULT_SCHEDULER, *rules.schedulers))
        yield f"schedulerName {scheduler} is not allowed. Allowed are: {allowed}"


def _tolerations(spec: Mapping[str, Any], rules: SchedulingRules) -> Iterator[str]:
    for each in entries(spec, "tolerations"):
        key = each.get("key")
        if not key:
            yield "a toleration without a key tolerates every taint; name the taint"
        elif key not in (*_EVERY_POD, *rules.taints):
            allowed = ", ".join(rules.taints) or "none"
            yield f"it tolerates the taint {key}; the taints that it may tolerate are: {allowed}"


def _node_labels(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield each label by which a pod chooses its nodes."""
    selector = spec.get("nodeSelector")
    yield from map(str, selector if isinstance(selector, dict) else ())
    affinity = _part(_part(spec, "affinity"), "nodeAffinity")
    terms = list(entries(_part(affinity, _REQUIRED), "nodeSelectorTerms"))
    terms += [_part(each, "preference") for each in entries(affinity, _PREFERRED)]
    for term in terms:
        for field in ("matchExpressions", "matchFields"):  # the only field is the name of a node
            yield from (str(each.get("key")) for each in entries(term, field))


def _other_namespaces(spec: Mapping[str, Any], namespace: str) -> Iterator[str]:
    """Yield what would let a pod follow the pods of other namespaces, or keep them off its nodes."""
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = _part(_part(spec, "affinity"), kind)
        terms = list(entries(affinity, _REQUIRED))
        terms += [_part(each, "podAffinityTerm") for each in entries(affinity, _PREFERRED)]
        for term in terms:
            named = term.get("namespaces")
            if term.get("namespaceSelector") is not None or (named and named != [namespace]):
                yield f"affinity.{kind} refers to pods of other namespaces"


def _part(part: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = part.get(field)
    return value if isinstance(value, dict) else {}

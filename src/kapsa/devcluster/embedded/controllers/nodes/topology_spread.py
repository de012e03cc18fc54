"""Topology spread constraints that forbid a node (`whenUnsatisfiable: DoNotSchedule`)."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.nodes.filters import ClusterState, Misfit, NodeFilter
from kapsa.devcluster.embedded.controllers.nodes.node_selection import selects, untolerated
from kapsa.devcluster.embedded.kinds.labels import matches

_UNEVEN = Misfit("node(s) didn't match pod topology spread constraints", preemptible=True)
_NO_LABEL = Misfit("node(s) didn't match pod topology spread constraints (missing required label)")

Constraint = dict[str, Any]


def constraints_of(pod: Object) -> list[Constraint]:
    """Return the constraints that keep a pod from nodes."""
    all_constraints = pod["spec"].get("topologySpreadConstraints") or ()
    return [each for each in all_constraints if each["whenUnsatisfiable"] == "DoNotSchedule"]


def spread_filter(pod: Object, state: ClusterState) -> NodeFilter | None:
    """Return the filter of a pod with constraints, or None."""
    constraints = constraints_of(pod)
    if not constraints:
        return None
    keys = {each["topologyKey"] for each in constraints}
    nodes = [n for n in state.objects(NODE) if keys <= (n["metadata"].get("labels") or {}).keys()]
    counts = [_matching_pods(each, pod, nodes, state) for each in constraints]

    def check(node: Object) -> Misfit | None:
        labels = node["metadata"].get("labels") or {}
        for constraint, domains in zip(constraints, counts, strict=True):
            value = labels.get(constraint["topologyKey"])
            if value is None:
                return _NO_LABEL
            enough = len(domains) >= (constraint.get("minDomains") or 1)
            lowest = min(domains.values()) if domains and enough else 0
            if domains.get(value, 0) + _selects(constraint, pod, pod) - lowest > constraint["maxSkew"]:
                return _UNEVEN
        return None

    return check


def _matching_pods(
    constraint: Constraint, pod: Object, nodes: list[Object], state: ClusterState
) -> dict[str, int]:
    """Return the number of pods that a constraint counts, by the domains of the nodes that it includes."""
    counts: dict[str, int] = {}
    for node in nodes:
        if _includes(constraint, pod, node):
            value = node["metadata"]["labels"][constraint["topologyKey"]]
            counted = sum(_counts(constraint, pod, each) for each in state.pods_on(node["metadata"]["name"]))
            counts[value] = counts.get(value, 0) + counted
    return counts


def _includes(constraint: Constraint, pod: Object, node: Object) -> bool:
    if (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor" and not selects(pod["spec"], node):
        return False
    return constraint.get("nodeTaintsPolicy") != "Honor" or untolerated(pod["spec"], node) is None


def _counts(constraint: Constraint, pod: Object, other: Object) -> bool:
    if is_finished(other) or is_deleting(other):
        return False
    same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
    # An empty selector counts no pods of others, although it selects the pod itself.
    return same and bool(constraint.get("labelSelector")) and _selects(constraint, pod, other)


def _selects(constraint: Constraint, pod: Object, other: Object) -> bool:
    labels, own = other["metadata"].get("labels") or {}, pod["metadata"].get("labels") or {}
    if not matches(constraint.get("labelSelector"), labels):
        return False
    return all(labels.get(key) == own[key] for key in constraint.get("matchLabelKeys") or () if key in own)

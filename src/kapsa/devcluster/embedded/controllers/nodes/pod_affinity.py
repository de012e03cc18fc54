"""Required affinity and anti-affinity between pods."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import NAMESPACE, NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.nodes.filters import ClusterState, Misfit, NodeFilter
from kapsa.devcluster.embedded.kinds.labels import matches

_NOT_NEAR = Misfit("node(s) didn't match pod affinity rules")
_TOO_NEAR = Misfit("node(s) didn't match pod anti-affinity rules", preemptible=True)
_REPELLED = Misfit("node(s) didn't satisfy existing pods anti-affinity rules", preemptible=True)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Term = dict[str, Any]
Domain = tuple[str, str]
"""The key and the value of a node's label."""


def required_terms(pod: Object, kind: str) -> list[Term]:
    """Return the required terms of `podAffinity` or `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get(_REQUIRED) or []


def affinity_filter(pod: Object, state: ClusterState) -> NodeFilter | None:
    """Return the filter of a pod that others repel, or with affinity or anti-affinity of its own; or None."""
    near, far = required_terms(pod, "podAffinity"), required_terms(pod, "podAntiAffinity")
    repelling = [other for other in state.repelling_pods() if not is_finished(other)]
    if not (near or far or repelling):
        return None
    labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in state.objects(NODE)}
    repelled: Counter[Domain] = Counter()
    for other in repelling:
        for term in required_terms(other, "podAntiAffinity"):
            if _matches(term, other, pod, state):
                _count(repelled, term, other, labels)
    attracted, avoided = _counts(pod, near, far, state, labels) if near or far else (Counter(), Counter())
    alone = not attracted and all(_matches(term, pod, pod, state) for term in near)

    def check(node: Object) -> Misfit | None:
        own = node["metadata"].get("labels") or {}
        domains = [(term["topologyKey"], own.get(term["topologyKey"])) for term in near]
        if any(value is None for _, value in domains):
            return _NOT_NEAR
        # The first of several pods that attract each other has none to be near to.
        if not alone and not all(domain in attracted for domain in domains):
            return _NOT_NEAR
        if any((term["topologyKey"], own.get(term["topologyKey"])) in avoided for term in far):
            return _TOO_NEAR
        return _REPELLED if any(domain in repelled for domain in own.items()) else None

    return check


def _counts(
    pod: Object, near: list[Term], far: list[Term], state: ClusterState, labels: dict[str, Any]
) -> tuple[Counter[Domain], Counter[Domain]]:
    """Return where the pods are that the pod's terms require, and those that they exclude."""
    attracted: Counter[Domain] = Counter()
    avoided: Counter[Domain] = Counter()
    for other in state.objects(POD):
        if not other["spec"].get("nodeName") or is_finished(other):
            continue
        if near and all(_matches(term, pod, other, state) for term in near):
            for term in near:
                _count(attracted, term, other, labels)
        for term in far:
            if _matches(term, pod, other, state):
                _count(avoided, term, other, labels)
    return attracted, avoided


def _count(counts: Counter[Domain], term: Term, pod: Object, labels: dict[str, Any]) -> None:
    key = term["topologyKey"]
    value = labels.get(pod["spec"]["nodeName"], {}).get(key)
    if value is not None:
        counts[key, value] += 1


def _matches(term: Term, owner: Object, pod: Object, state: ClusterState) -> bool:
    """Return whether the term of its owner selects a pod."""
    labels, own = pod["metadata"].get("labels") or {}, owner["metadata"].get("labels") or {}
    if not matches(term.get("labelSelector"), labels) or not _is_in_namespaces(term, owner, pod, state):
        return False
    same = (key for key in term.get("matchLabelKeys") or () if key in own)
    other = (key for key in term.get("mismatchLabelKeys") or () if key in own)
    return all(labels.get(key) == own[key] for key in same) and all(labels.get(k) != own[k] for k in other)


def _is_in_namespaces(term: Term, owner: Object, pod: Object, state: ClusterState) -> bool:
    namespace, names = pod["metadata"]["namespace"], term.get("namespaces") or []
    selector = term.get("namespaceSelector")
    if selector is None:
        return namespace in (names or [owner["metadata"]["namespace"]])
    if namespace in names:
        return True
    labelled = state.get(NAMESPACE, "", namespace)
    return labelled is not None and matches(selector, labelled["metadata"].get("labels") or {})

"""The choice of a node for a pod: selectors, affinity, taints, free resources."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Protocol

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.schemas.quantities import parse

HARD = ("NoSchedule", "NoExecute")


class NodeOccupancy(Protocol):
    """The pods that are bound to nodes already."""

    def count(self, node: str) -> int:
        """Return the number of pods on a node."""

    def pods(self, node: str) -> list[Object]:
        """Return the pods on a node. Called only if their requests matter."""


def tolerates(tolerations: Iterable[dict[str, Any]], taint: dict[str, Any]) -> bool:
    """Return whether any of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    if not toleration.get("key"):
        return False
    return (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(
    pod_spec: dict[str, Any], node: Object, effects: tuple[str, ...] = HARD
) -> dict[str, Any] | None:
    """Return the first taint that the pod does not tolerate, or None."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") in effects and not tolerates(tolerations, taint):
            return dict(taint)
    return None


def selects(pod_spec: dict[str, Any], node: Object) -> bool:
    """Return whether nodeSelector and required node affinity allow the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _term(term: dict[str, Any], labels: dict[str, str], fields: dict[str, str]) -> bool:
    expressions, on_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not on_fields:
        return False
    return all(_requirement(e, labels) for e in expressions) and all(
        _requirement(e, fields) for e in on_fields
    )


def _requirement(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
        case _:
            return False


def requests(pod_spec: dict[str, Any]) -> dict[str, Decimal]:
    """Return the pod's resource requests: the larger of its containers' sum and any single init container."""
    total: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or ():
        for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, Decimal(0)) + parse(quantity)
    for container in pod_spec.get("initContainers") or ():
        for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total.get(name, Decimal(0)), parse(quantity))
    return total


def shortage(pod_spec: dict[str, Any], node: Object, occupancy: NodeOccupancy) -> list[str]:
    """Return the reasons why the node is too small, in kube-scheduler's words; empty if the pod fits."""
    name = node["metadata"]["name"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    reasons = []
    if "pods" in allocatable and occupancy.count(name) + 1 > parse(allocatable["pods"]):
        reasons.append("Too many pods")
    requested = requests(pod_spec)
    if not requested:
        return reasons
    used: dict[str, Decimal] = {}
    for pod in occupancy.pods(name):
        if not is_finished(pod):
            for resource, amount in requests(pod["spec"]).items():
                used[resource] = used.get(resource, Decimal(0)) + amount
    for resource, amount in sorted(requested.items()):
        if amount and amount + used.get(resource, Decimal(0)) > parse(allocatable.get(resource, 0)):
            reasons.append(f"Insufficient {resource}")
    return reasons


def choose(pod: Object, nodes: list[Object], occupancy: NodeOccupancy) -> tuple[str | None, str]:
    """Return the node with the fewest pods that fits the pod, or kube-scheduler's message why none does."""
    spec = pod["spec"]
    reasons: dict[str, int] = {}
    fitting: list[tuple[int, str]] = []
    for node in nodes:
        name = node["metadata"]["name"]
        why = _unfit(spec, node, occupancy)
        for reason in why:
            reasons[reason] = reasons.get(reason, 0) + 1
        if not why:
            fitting.append((occupancy.count(name), name))
    if fitting:
        return min(fitting)[1], ""
    if not nodes:
        return None, "no nodes available to schedule pods"
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return None, (
        f"0/{len(nodes)} nodes are available: {summary}. no new claims to deallocate, preemption: "
        f"0/{len(nodes)} nodes are available: {len(nodes)} Preemption is not helpful for scheduling."
    )


def _unfit(spec: dict[str, Any], node: Object, occupancy: NodeOccupancy) -> list[str]:
    if node["spec"].get("unschedulable") and not tolerates(
        spec.get("tolerations") or (), {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return ["node(s) were unschedulable"]
    if untolerated(spec, node) is not None:
        return ["node(s) had untolerated taint(s)"]
    if not selects(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return shortage(spec, node, occupancy)

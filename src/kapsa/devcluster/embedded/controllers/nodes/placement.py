"""The choice of a node for a pod, in the order and the words of kube-scheduler's filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Protocol

from kapsa.devcluster.embedded.admission.pod_amounts import pod_amounts
from kapsa.devcluster.embedded.controllers.machinery.kinds import PRIORITY_CLASS, Object
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.nodes.filters import (
    ClusterState,
    Misfit,
    NodeFilter,
    RejectedPodError,
)
from kapsa.devcluster.embedded.controllers.nodes.host_ports import port_filter
from kapsa.devcluster.embedded.controllers.nodes.node_selection import selects, tolerates, untolerated
from kapsa.devcluster.embedded.controllers.nodes.pod_affinity import affinity_filter
from kapsa.devcluster.embedded.controllers.nodes.pod_volumes import volume_filter
from kapsa.devcluster.embedded.controllers.nodes.topology_spread import spread_filter
from kapsa.schemas.quantities import parse

_UNSCHEDULABLE = Misfit("node(s) were unschedulable")
_TAINTED = Misfit("node(s) had untolerated taint(s)")
_NOT_SELECTED = Misfit("node(s) didn't match Pod's node affinity/selector")
_FULL = Misfit("Too many pods", preemptible=True)
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class NodeOccupancy(Protocol):
    """The pods that are bound to nodes already."""

    def count(self, node: str) -> int:
        """Return the number of pods on a node."""

    def pods(self, node: str) -> list[Object]:
        """Return the pods on a node. Called only if their requests matter."""


def choose(
    pod: Object, nodes: list[Object], occupancy: NodeOccupancy, state: ClusterState
) -> tuple[Object | None, str]:
    """Return the node with the fewest pods that fits the pod, or kube-scheduler's message why none does."""
    if not nodes:
        return None, "no nodes available to schedule pods"
    try:
        before, after = _filters(pod, state)
    except RejectedPodError as error:
        # kube-scheduler ends with the error of its plugin for devices, which has not seen such a pod.
        return None, f"0/{len(nodes)} nodes are available: {error}. not found"
    unfit: list[tuple[Object, list[Misfit]]] = []
    fitting: list[tuple[int, str, Object]] = []
    for node in nodes:
        reasons = _unfit(pod["spec"], node, occupancy, before, after)
        if reasons:
            unfit.append((node, reasons))
        else:
            name = node["metadata"]["name"]
            fitting.append((occupancy.count(name), name, node))
    if fitting:
        return min(fitting, key=lambda entry: entry[:2])[2], ""
    summary = _summary(reason.text for _, reasons in unfit for reason in reasons)
    return None, (
        f"0/{len(nodes)} nodes are available: {summary}. no new claims to deallocate, "
        f"preemption: {_preemption(pod, unfit, state)}."
    )


def _filters(pod: Object, state: ClusterState) -> tuple[list[NodeFilter], list[NodeFilter]]:
    """Return the filters that a pod needs before that of its resources, and after it."""
    ports = port_filter(pod, state)
    others = (volume_filter(pod, state), spread_filter(pod, state), affinity_filter(pod, state))
    return [ports] if ports else [], [check for check in others if check]


def _unfit(
    spec: Object,
    node: Object,
    occupancy: NodeOccupancy,
    before: list[NodeFilter],
    after: list[NodeFilter],
) -> list[Misfit]:
    if node["spec"].get("unschedulable") and not tolerates(spec.get("tolerations") or (), _CORDONED):
        return [_UNSCHEDULABLE]
    if untolerated(spec, node) is not None:
        return [_TAINTED]
    if not selects(spec, node):
        return [_NOT_SELECTED]
    return _first(before, node) or shortage(spec, node, occupancy) or _first(after, node)


def _first(filters: list[NodeFilter], node: Object) -> list[Misfit]:
    for check in filters:
        reason = check(node)
        if reason is not None:
            return [reason]
    return []


def requests(spec: Object) -> dict[str, Decimal]:
    """Return what a pod requests: its containers, sidecars and overhead, or the amounts of the whole pod."""
    if any(spec.get(field) for field in ("initContainers", "resources", "overhead")):
        return {name: parse(amount) for name, amount in pod_amounts(spec, "requests", overhead=True).items()}
    # The pods of a node are counted again for each pod that requests something, and most have containers alone.
    total: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, Decimal(0)) + parse(amount)
    return total


def shortage(spec: Object, node: Object, occupancy: NodeOccupancy) -> list[Misfit]:
    """Return the reasons why the node is too small; empty if the pod fits."""
    name = node["metadata"]["name"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    reasons = []
    if "pods" in allocatable and occupancy.count(name) + 1 > parse(allocatable["pods"]):
        reasons.append(_FULL)
    requested = requests(spec)
    if not requested:
        return reasons
    used: dict[str, Decimal] = {}
    for pod in occupancy.pods(name):
        if not is_finished(pod):
            for resource, amount in requests(pod["spec"]).items():
                used[resource] = used.get(resource, Decimal(0)) + amount
    for resource, amount in sorted(requested.items()):
        capacity = parse(allocatable.get(resource, 0))
        if amount and amount + used.get(resource, Decimal(0)) > capacity:
            reasons.append(Misfit(f"Insufficient {resource}", preemptible=amount <= capacity))
    return reasons


def _summary(texts: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {text}" for text, count in Counter(texts).items()))


def _preemption(pod: Object, unfit: list[tuple[Object, list[Misfit]]], state: ClusterState) -> str:
    """Return why no other pod makes room. Where kube-scheduler would evict pods, name the limit of this engine."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never"
    candidates = [node for node, reasons in unfit if all(reason.preemptible for reason in reasons)]
    texts = ["Preemption is not helpful for scheduling"] * (len(unfit) - len(candidates))
    priority = pod["spec"].get("priority") or 0
    lowest = min((each["value"] for each in state.objects(PRIORITY_CLASS)), default=0)
    for node in candidates:
        # No pod has a priority below the lowest, so most pods need no look at those on the node.
        if priority > min(lowest, 0) and _has_pods_below(priority, node, state):
            texts.append("node(s) have pods of lower priority, which the embedded engine does not preempt")
        else:
            texts.append("No preemption victims found for incoming pod")
    return f"0/{len(unfit)} nodes are available: {_summary(texts)}"


def _has_pods_below(priority: int, node: Object, state: ClusterState) -> bool:
    pods = state.pods_on(node["metadata"]["name"])
    return any((pod["spec"].get("priority") or 0) < priority for pod in pods if not is_finished(pod))

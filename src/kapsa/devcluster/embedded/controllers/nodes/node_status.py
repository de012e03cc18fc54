"""The status of nodes: healthy reports, lost nodes, and the eviction of their pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.nodes.node_selection import tolerates

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
_RESOURCES = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "1k"}
_GRACE = 50.0
"""Seconds without a report after which a node counts as lost (node-monitor-grace-period)."""
_HEALTHY = (
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def new_node(number: int) -> Object:
    """Return the nth node of a new cluster, counted from 1."""
    name = f"node-{number}"
    return {
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node-role.kubernetes.io/worker": "",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250 + 1}"},
                {"type": "Hostname", "address": name},
            ]
        },
    }


class NodeStep(msgspec.Struct):
    """The next step of a node."""

    status: Object | None = None
    """Status to write; None if it stays."""
    taints: list[dict[str, Any]] | None = None
    """Taints to write; None if they stay."""
    again: float | None = None
    """Seconds until the next step."""
    event: tuple[str, str] | None = None
    """Reason and message."""


def report(node: Object, *, silent_since: datetime | None, now: datetime) -> NodeStep:
    """Compute the next status of a node, written by its kubelet, or by the node controller if that is gone.

    `silent_since` is the time of the kubelet's last report; None while it is healthy.
    """
    status = node.get("status") or {}
    ready = find(status.get("conditions"), "Ready")
    if silent_since is None:
        if ready is not None and ready["status"] == "True" and not _own_taints(node):
            return NodeStep()
        event = ("NodeReady", f"Node {node['metadata']['name']} status is now: NodeReady")
        is_new = ready is None
        return NodeStep(
            status=_healthy(node, now), taints=_without_own(node), event=None if is_new else event
        )
    quiet = (now - silent_since).total_seconds()
    if quiet < _GRACE:
        return NodeStep(again=_GRACE - quiet)
    if ready is not None and ready["status"] == "Unknown":
        return NodeStep()
    moment = render(now)
    lost = {
        "status": "Unknown",
        "lastTransitionTime": moment,
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    unknown = [{**condition, **lost} for condition in status.get("conditions") or ()]
    own = [{"key": UNREACHABLE, "effect": e, "timeAdded": moment} for e in ("NoSchedule", "NoExecute")]
    taints = [*_without_own(node), *own]
    event = ("NodeNotReady", f"Node {node['metadata']['name']} status is now: NodeNotReady")
    return NodeStep(status={**status, "conditions": unknown}, taints=taints, event=event)


def _healthy(node: Object, now: datetime) -> Object:
    status = dict(node.get("status") or {})
    for field in ("capacity", "allocatable"):
        status[field] = status.get(field) or dict(_RESOURCES)
    moment = render(now)
    before = status.get("conditions") or []
    healthy = []
    for type_, value, reason, message in _HEALTHY:
        current = find(before, type_)
        since = current["lastTransitionTime"] if current and current["status"] == value else moment
        healthy.append(
            {
                "type": type_,
                "status": value,
                "lastHeartbeatTime": moment,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    own = {type_ for type_, _, _, _ in _HEALTHY}
    status["conditions"] = healthy + [c for c in before if c["type"] not in own]
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 10250}})
    status["nodeInfo"] = status.get("nodeInfo") or {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return status


def _own_taints(node: Object) -> list[dict[str, Any]]:
    return [t for t in node["spec"].get("taints") or () if t["key"] in (UNREACHABLE, NOT_READY)]


def _without_own(node: Object) -> list[dict[str, Any]]:
    return [t for t in node["spec"].get("taints") or () if t["key"] not in (UNREACHABLE, NOT_READY)]


def evict_in(pod: Object, node: Object, now: datetime) -> float | None:
    """Return the seconds until a pod is evicted because of NoExecute taints; None if it may stay."""
    if is_deleting(pod) or is_finished(pod):
        return None
    soonest: float | None = None
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") != "NoExecute":
            continue
        tolerating = [t for t in pod["spec"].get("tolerations") or () if tolerates([t], taint)]
        if not tolerating:
            return 0.0
        limits = [t["tolerationSeconds"] for t in tolerating if t.get("tolerationSeconds") is not None]
        if len(limits) == len(tolerating):
            since = taint.get("timeAdded")
            left = max(0.0, min(limits) - (seconds_since(since, now) if since else 0.0))
            soonest = left if soonest is None else min(soonest, left)
    return soonest

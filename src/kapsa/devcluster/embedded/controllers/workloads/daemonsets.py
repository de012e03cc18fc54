"""The plan of a DaemonSet: one pod on each eligible node."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import DAEMON_SET, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import Create, Delete, Note, UpdateStatus, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.pod_state import (
    available_in,
    is_finished,
    is_ready,
    phase,
)
from kapsa.devcluster.embedded.controllers.nodes import node_selection
from kapsa.devcluster.embedded.controllers.workloads import revisions
from kapsa.devcluster.embedded.controllers.workloads.revisions import REVISION_LABEL
from kapsa.devcluster.embedded.controllers.workloads.rollout import age_key, scaled
from kapsa.devcluster.embedded.controllers.workloads.templates import pod_from

GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
_FIELD = "metadata.name"

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Taints that daemon pods tolerate: they are often what repairs the node."""


def plan(
    owner: Object, pods: list[Object], nodes: list[Object], history: list[Object], now: datetime
) -> WritePlan:
    """Plan the next step of a DaemonSet."""
    return _Sync(owner, pods, nodes, history, now).run()


def target_node(pod: Object) -> str:
    """Return the node that a daemon pod is on or is meant for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for match in term.get("matchFields") or ():
            if match["key"] == _FIELD and match.get("values"):
                return str(match["values"][0])
    return ""


class _Sync:
    def __init__(
        self, owner: Object, pods: list[Object], nodes: list[Object], history: list[Object], now: datetime
    ) -> None:
        self.owner, self.now = owner, now
        self.spec: dict[str, Any] = owner["spec"]
        self.plan = WritePlan()
        self.history = revisions.record(self.plan, DAEMON_SET, owner, history, label=REVISION_LABEL)
        self.digest = self.history.latest["metadata"]["labels"][REVISION_LABEL]
        self.template = self._template()
        self.nodes = nodes
        self.pods = pods
        self.by_node: dict[str, list[Object]] = {}
        for pod in sorted(pods, key=age_key):
            self.by_node.setdefault(target_node(pod), []).append(pod)

    def run(self) -> WritePlan:
        if not is_deleting(self.owner):
            self._fill_nodes()
            if (self.spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
                self._update()
            live = {(p["metadata"].get("labels") or {}).get(REVISION_LABEL) for p in self.pods}
            names = {
                r["metadata"]["name"]
                for r in self.history.revisions
                if r["metadata"]["labels"].get(REVISION_LABEL) in live
            }
            limit = self.spec.get("revisionHistoryLimit")
            revisions.truncate(self.plan, self.history, names, 10 if limit is None else int(limit))
        self._write_status()
        return self.plan

    def _template(self) -> Object:
        template: Object = copy.deepcopy(self.spec["template"])
        spec = template["spec"]
        tolerations = list(spec.get("tolerations") or [])
        tolerated = list(_TOLERATED)
        if spec.get("hostNetwork"):
            tolerated.append(("node.kubernetes.io/network-unavailable", "NoSchedule"))
        tolerations += [{"key": key, "operator": "Exists", "effect": effect} for key, effect in tolerated]
        spec["tolerations"] = tolerations
        generation = (self.owner["metadata"].get("annotations") or {}).get(GENERATION_ANNOTATION)
        labels = {**((template.get("metadata") or {}).get("labels") or {}), REVISION_LABEL: self.digest}
        if generation:
            labels[GENERATION_LABEL] = generation
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        return template

    # -- nodes --------------------------------------------------------------------------------------------

    def _eligibility(self, node: Object) -> tuple[bool, bool]:
        """Return whether the node should run a pod, and whether a pod on it may stay."""
        spec = self.template["spec"]
        if spec.get("nodeName") and spec["nodeName"] != node["metadata"]["name"]:
            return False, False
        if not node_selection.selects(spec, node):
            return False, False
        if node_selection.untolerated(spec, node, ("NoExecute",)) is not None:
            return False, False
        return node_selection.untolerated(spec, node, ("NoSchedule",)) is None, True

    def _fill_nodes(self) -> None:
        names = {node["metadata"]["name"] for node in self.nodes}
        for node in self.nodes:
            pods = self.by_node.get(node["metadata"]["name"], [])
            should_run, may_stay = self._eligibility(node)
            live = [pod for pod in pods if not is_deleting(pod)]
            failed = [pod for pod in live if phase(pod) == "Failed"]
            for pod in failed:
                self._delete(pod, failed=True)
            running = [pod for pod in live if pod not in failed]
            if should_run and not pods:
                self._create(node)
            elif not may_stay:
                for pod in running:
                    self._delete(pod)
            elif len(running) > 1 + bool(self._surge()):
                for pod in running[1:]:
                    self._delete(pod)
        for name, pods in self.by_node.items():
            if name not in names and name:
                for pod in pods:
                    if not is_deleting(pod) and not pod["spec"].get("nodeName"):
                        self._delete(pod)

    def _create(self, node: Object) -> None:
        pod = pod_from(self.template, DAEMON_SET, self.owner)
        name = node["metadata"]["name"]
        affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchFields": [{"key": _FIELD, "operator": "In", "values": [name]}]}]
        }
        self.plan.do(
            Create(
                POD,
                pod,
                done=Note(self.owner, "SuccessfulCreate", "Created pod: {name}"),
                failed=Note(self.owner, "FailedCreate", "Error creating: {error}", "Warning"),
            )
        )

    def _delete(self, pod: Object, *, failed: bool = False) -> None:
        if failed:
            text = (
                f"Found failed daemon pod {pod['metadata']['namespace']}/{pod['metadata']['name']} on node "
            )
            text += f"{target_node(pod)}, will try to kill it"
            note = Note(self.owner, "FailedDaemonPod", text, "Warning")
        else:
            note = Note(self.owner, "SuccessfulDelete", "Deleted pod: {name}")
        self.plan.do(Delete(POD, pod, done=note))

    # -- rolling update -----------------------------------------------------------------------------------

    def _rolling(self) -> dict[str, Any]:
        rolling: dict[str, Any] = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        return rolling

    def _desired(self) -> list[Object]:
        return [node for node in self.nodes if self._eligibility(node)[0]]

    def _surge(self) -> int:
        return scaled(self._rolling().get("maxSurge", 0), len(self._desired()), up=True)

    def _update(self) -> None:
        desired = self._desired()
        surge = self._surge()
        budget = scaled(self._rolling().get("maxUnavailable", 1), len(desired), up=True)
        if not surge:
            budget = max(1, budget)
        outdated: list[Object] = []
        for node in desired:
            pods = [p for p in self.by_node.get(node["metadata"]["name"], []) if not is_finished(p)]
            live = [pod for pod in pods if not is_deleting(pod)]
            new = [pod for pod in live if self._is_current(pod)]
            old = [pod for pod in live if not self._is_current(pod)]
            if surge:
                surge -= self._surge_on(node, old, new, surge)
                continue
            if not any(self._is_available(pod) for pod in live):
                budget -= 1
                # The node's pod is down already: replacing it costs no availability.
                for pod in old:
                    self._delete(pod)
            else:
                outdated += old
        if not self._surge():
            for pod in outdated[: max(0, budget)]:
                self._delete(pod)

    def _surge_on(self, node: Object, old: list[Object], new: list[Object], left: int) -> int:
        if old and any(self._is_available(pod) for pod in new):
            for pod in old:
                self._delete(pod)
            return 0
        if old and not new and left > 0:
            self._create(node)
        return 1 if old else 0

    def _is_current(self, pod: Object) -> bool:
        return bool((pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == self.digest)

    # -- status -------------------------------------------------------------------------------------------

    def _write_status(self) -> None:
        counts = dict.fromkeys(("desired", "current", "ready", "available", "updated", "misscheduled"), 0)
        for node in self.nodes:
            pods = self.by_node.get(node["metadata"]["name"], [])
            if not self._eligibility(node)[0]:
                counts["misscheduled"] += bool(pods)
                continue
            counts["desired"] += 1
            if pods:
                counts["current"] += 1
                newest = pods[-1]
                if is_ready(newest):
                    counts["ready"] += 1
                    counts["available"] += self._is_available(newest)
                counts["updated"] += self._is_current(newest)
        before = self.owner.get("status") or {}
        status: dict[str, Any] = {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "desiredNumberScheduled": counts["desired"],
            "numberReady": counts["ready"],
            "observedGeneration": self.owner["metadata"].get("generation", 1),
        }
        optional = {
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": counts["desired"] - counts["available"],
        }
        status.update({key: value for key, value in optional.items() if value})
        for kept in ("collisionCount", "conditions"):
            if before.get(kept):
                status[kept] = before[kept]
        if status != before:
            self.plan.do(UpdateStatus(DAEMON_SET, {**self.owner, "status": status}))

    def _is_available(self, pod: Object) -> bool:
        left = available_in(pod, self.spec.get("minReadySeconds") or 0, self.now)
        if left:
            self.plan.requeue_after(left)
        return left == 0.0

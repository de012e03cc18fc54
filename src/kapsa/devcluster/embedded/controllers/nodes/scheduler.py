"""The scheduler."""

from __future__ import annotations

from datetime import datetime

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import Note, UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, key_of
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes import placement
from kapsa.devcluster.embedded.controllers.nodes.pod_affinity import required_terms
from kapsa.devcluster.embedded.controllers.nodes.pod_volumes import claim_names, plan_claims
from kapsa.devcluster.embedded.controllers.nodes.topology_spread import constraints_of
from kapsa.devcluster.workloads import Workloads


class Scheduler:
    """Controller that binds pods to nodes."""

    name = "scheduler"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self._waiting_for_claims: set[Key] = set()
        self._waiting_for_pods: set[Key] = set()
        """Pods that another pod on a node could allow to be scheduled."""
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all pods without a node."""
        self.retry()

    def retry(self) -> None:
        """Enqueue all pods without a node: a node changed, or has free resources again."""
        for pod in self._view.unscheduled():
            self.queue.add(key_of(pod))

    def observe(self, new: Object | None, old: Object | None) -> None:
        """Enqueue a pod that can be scheduled, or those that wait for what a change of another may allow."""
        if new is None or is_finished(new):
            gone = old is not None and old["spec"].get("nodeName") and not is_finished(old)
            if gone and self._view.unscheduled():
                self.retry()
        elif new["spec"].get("nodeName"):
            if self._waiting_for_pods and (old is None or _node_and_labels(old) != _node_and_labels(new)):
                self._resume(self._waiting_for_pods)
        elif old is None or old["spec"].get("schedulingGates") != new["spec"].get("schedulingGates"):
            self.queue.add(key_of(new))

    def observe_storage(self, new: Object | None, old: Object | None) -> None:
        """Enqueue the pods whose claims a change of a claim, a volume or a class may have bound."""
        self._resume(self._waiting_for_claims)

    def _resume(self, keys: set[Key]) -> None:
        for key in keys:
            self.queue.add(key)
        keys.clear()

    async def _process(self, key: Key) -> None:
        pod = self._view.get(POD, *key)
        if pod is None or not _is_schedulable(pod):
            return
        now = self._backend.clock.now()
        wait = self._workloads.behaviour(pod).delays.schedule - seconds_since(
            pod["metadata"]["creationTimestamp"], now
        )
        if wait > 0:
            self.queue.add_after(key, wait)
            return
        node, message = placement.choose(pod, self._view.objects(NODE), self._view.pods_by_node, self._view)
        if node is None:
            self._wait(key, pod)
            await self._report_unschedulable(pod, message, now)
            return
        claims = plan_claims(pod, node, self._view)
        if claims is not None:
            self._waiting_for_claims.add(key)
            await self._executor.run(claims)
            return
        name = node["metadata"]["name"]
        if not await self._executor.bind(POD, pod, name):
            return
        metadata = pod["metadata"]
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {name}"
        await self._executor.note(Note(pod, "Scheduled", text))

    def _wait(self, key: Key, pod: Object) -> None:
        """Remember which changes, other than of nodes and of pods that leave them, may allow a pod."""
        if claim_names(pod):
            self._waiting_for_claims.add(key)
        if required_terms(pod, "podAffinity") or constraints_of(pod):
            self._waiting_for_pods.add(key)

    async def _report_unschedulable(self, pod: Object, message: str, now: datetime) -> None:
        status = pod.get("status") or {}
        current = find(status.get("conditions"), "PodScheduled")
        if current is not None and current.get("message") == message:
            return
        generation = pod["metadata"].get("generation", 1)
        condition = {
            **_scheduled("False", now),
            "observedGeneration": generation,
            "reason": "Unschedulable",
            "message": message,
        }
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        await self._executor.note(Note(pod, "FailedScheduling", message, "Warning"))
        await self._executor.do(
            UpdateStatus(POD, {**pod, "status": {**status, "conditions": [*others, condition]}})
        )


def _is_schedulable(pod: Object) -> bool:
    spec = pod["spec"]
    own = spec.get("schedulerName", "default-scheduler") == "default-scheduler"
    return own and not spec.get("nodeName") and not spec.get("schedulingGates") and not is_deleting(pod)


def _node_and_labels(pod: Object) -> tuple[str | None, object]:
    return pod["spec"].get("nodeName"), pod["metadata"].get("labels")


def _scheduled(status: str, now: datetime) -> Object:
    return {
        "type": "PodScheduled",
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": render(now),
    }

"""The scheduler."""

from __future__ import annotations

from datetime import datetime

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import Note, UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, key_of
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes import placement
from kapsa.devcluster.workloads import Workloads


class Scheduler:
    """Controller that binds pods to nodes."""

    name = "scheduler"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all pods without a node."""
        self.retry()

    def retry(self) -> None:
        """Enqueue all pods without a node: a node changed, or has free resources again."""
        for pod in self._view.unscheduled():
            self.queue.add(key_of(pod))

    def observe(self, new: Object | None, old: Object | None) -> None:
        """Enqueue a pod that can be scheduled, or all that wait if a pod left its node."""
        if new is None:
            if old is not None and old["spec"].get("nodeName") and self._view.unscheduled():
                self.retry()
        elif not new["spec"].get("nodeName") and (
            old is None or old["spec"].get("schedulingGates") != new["spec"].get("schedulingGates")
        ):
            self.queue.add(key_of(new))

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
        node, message = placement.choose(pod, self._view.objects(NODE), self._view.pods_by_node)
        if node is None:
            await self._report_unschedulable(pod, message, now)
            return
        if not await self._executor.bind(POD, pod, node):
            return
        metadata = pod["metadata"]
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        await self._executor.note(Note(pod, "Scheduled", text))

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


def _scheduled(status: str, now: datetime) -> Object:
    return {
        "type": "PodScheduled",
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": render(now),
    }

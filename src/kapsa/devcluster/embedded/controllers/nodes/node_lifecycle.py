"""The node life cycle controller."""

from __future__ import annotations

from datetime import datetime, timedelta

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import Delete, Note, Update, UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes import node_status
from kapsa.devcluster.workloads import Workloads

_ORPHAN_QUARANTINE = 40.0
"""Seconds after which the pods of a deleted node are deleted."""


class NodeController:
    """Controller of node readiness, taints, evictions, and the pods of deleted nodes."""

    name = "node-controller"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self._silent: dict[str, datetime] = {}
        self._deleted: dict[str, datetime] = {}
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all nodes."""
        self.retry()

    def retry(self) -> None:
        """Enqueue all nodes: a test removed or restored one."""
        for node in self._view.objects(NODE):
            self.queue.add(("", node["metadata"]["name"]))

    def observe(self, new: Object | None, old: Object | None) -> None:
        """Enqueue a changed node."""
        changed = new or old
        assert changed is not None
        name = changed["metadata"]["name"]
        if new is None:
            self._deleted[name] = self._backend.clock.now()
        else:
            self._deleted.pop(name, None)
        self.queue.add(("", name))

    def observe_pod(self, new: Object | None, old: Object | None) -> None:
        """Enqueue the node a pod was bound to if it has taints or does not exist."""
        if new is None or (old is not None and old["spec"].get("nodeName") == new["spec"].get("nodeName")):
            return
        name = new["spec"].get("nodeName")
        if name:
            node = self._view.get(NODE, "", name)
            if node is None:
                self._deleted.setdefault(name, self._backend.clock.now())
            if node is None or node["spec"].get("taints"):
                self.queue.add(("", name))

    async def _process(self, key: Key) -> None:
        name = key[1]
        node = self._view.get(NODE, "", name)
        now = self._backend.clock.now()
        if node is None:
            await self._collect_orphans(name, now)
            return
        if self._workloads.is_gone(name):
            self._silent.setdefault(name, now)
        else:
            self._silent.pop(name, None)
        step = node_status.report(node, silent_since=self._silent.get(name), now=now)
        if step.status is not None:
            node = await self._executor.do(UpdateStatus(NODE, {**node, "status": step.status})) or node
        if step.taints is not None and step.taints != (node["spec"].get("taints") or []):
            node = (
                await self._executor.do(
                    Update(NODE, {**node, "spec": {**node["spec"], "taints": step.taints}})
                )
                or node
            )
        if step.event is not None:
            await self._executor.note(Note(node, *step.event))
        if step.again is not None:
            self.queue.add_after(key, step.again)
        await self._mark_pods(node, now)
        await self._evict(key, node, now)

    async def _mark_pods(self, node: Object, now: datetime) -> None:
        """Mark the pods of a lost node as not ready, whatever their kubelet last reported."""
        ready = find((node.get("status") or {}).get("conditions"), "Ready")
        if ready is None or ready["status"] == "True":
            return
        for pod in self._view.pods_on(node["metadata"]["name"]):
            status = pod.get("status") or {}
            condition = find(status.get("conditions"), "Ready")
            if condition is not None and condition["status"] == "True" and not is_finished(pod):
                changed = {**condition, "status": "False", "lastTransitionTime": render(now)}
                all_conditions = [changed if c is condition else c for c in status["conditions"]]
                await self._executor.do(
                    UpdateStatus(POD, {**pod, "status": {**status, "conditions": all_conditions}})
                )
                await self._executor.note(Note(pod, "NodeNotReady", "Node is not ready", "Warning"))

    async def _evict(self, key: Key, node: Object, now: datetime) -> None:
        for pod in self._view.pods_on(node["metadata"]["name"]):
            left = node_status.evict_in(pod, node, now)
            if left is None:
                continue
            if left > 0:
                self.queue.add_after(key, left)
                continue
            metadata = pod["metadata"]
            status = pod.get("status") or {}
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": render(now),
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
            }
            kept = [c for c in status.get("conditions") or () if c["type"] != "DisruptionTarget"]
            await self._executor.do(
                UpdateStatus(POD, {**pod, "status": {**status, "conditions": [*kept, condition]}})
            )
            text = f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}"
            await self._executor.note(
                Note(pod, "TaintManagerEviction", text, component="taint-eviction-controller")
            )
            await self._executor.do(Delete(POD, pod))

    async def _collect_orphans(self, name: str, now: datetime) -> None:
        since = self._deleted.get(name)
        orphans = self._view.pods_on(name)
        if since is None or not orphans:
            self._deleted.pop(name, None)
            return
        left = (since + timedelta(seconds=_ORPHAN_QUARANTINE) - now).total_seconds()
        if left > 0:
            self.queue.add_after(("", name), left)
            return
        for pod in orphans:
            await self._executor.do(Delete(POD, pod, grace=0))

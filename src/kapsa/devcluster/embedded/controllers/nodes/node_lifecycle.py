"""The node life cycle: readiness, taints, eviction, and the pods of deleted nodes."""

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
from kapsa.devcluster.embedded.controllers.nodes import node_status as nodes
from kapsa.devcluster.workloads import Workloads

_ORPHAN_QUARANTINE = 40.0
"""Seconds after which pods of a node that no longer exists are removed."""


class NodeController:
    """Node life cycle: readiness, taints, eviction, and the pods of nodes that were deleted."""

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
        self.retry()

    def retry(self) -> None:
        for node in self._view.objects(NODE):
            self.queue.add(("", node["metadata"]["name"]))

    def notice(self, new: Object | None, old: Object | None) -> None:
        """A node changed."""
        changed = new or old
        assert changed is not None
        name = changed["metadata"]["name"]
        if new is None:
            self._deleted[name] = self._backend.clock.now()
        else:
            self._deleted.pop(name, None)
        self.queue.add(("", name))

    def notice_pod(self, new: Object | None, old: Object | None) -> None:
        """A pod came to a node that may have taints, or that is not there."""
        if new is None or (old is not None and old["spec"].get("nodeName") == new["spec"].get("nodeName")):
            return
        node = new["spec"].get("nodeName")
        if node:
            known = self._view.get(NODE, "", node)
            if known is None:
                self._deleted.setdefault(node, self._backend.clock.now())
            if known is None or known["spec"].get("taints"):
                self.queue.add(("", node))

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
        life = nodes.report(node, silent_since=self._silent.get(name), now=now)
        if life.status is not None:
            node = await self._executor.do(UpdateStatus(NODE, {**node, "status": life.status})) or node
        if life.taints is not None and life.taints != (node["spec"].get("taints") or []):
            node = (
                await self._executor.do(
                    Update(NODE, {**node, "spec": {**node["spec"], "taints": life.taints}})
                )
                or node
            )
        if life.event is not None:
            await self._executor.note(Note(node, *life.event))
        if life.again is not None:
            self.queue.add_after(key, life.again)
        await self._mark_pods(node, now)
        await self._evict(key, node, now)

    async def _mark_pods(self, node: Object, now: datetime) -> None:
        """Pods on a node nobody hears from are not ready, whatever their kubelet last said."""
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
            left = nodes.evict_in(pod, node, now)
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
        there = self._view.pods_on(name)
        if since is None or not there:
            self._deleted.pop(name, None)
            return
        left = (since + timedelta(seconds=_ORPHAN_QUARANTINE) - now).total_seconds()
        if left > 0:
            self.queue.add_after(("", name), left)
            return
        for pod in there:
            await self._executor.do(Delete(POD, pod, grace=0))

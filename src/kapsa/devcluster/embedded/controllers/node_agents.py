"""The I/O of scheduler, kubelets and node life cycle: what keeps pods going once they exist."""

from __future__ import annotations

from datetime import datetime, timedelta

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers import nodes, placement, pods
from kapsa.devcluster.embedded.controllers.conditions import find
from kapsa.devcluster.embedded.controllers.executor import Executor
from kapsa.devcluster.embedded.controllers.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.plan import Delete, Note, Update, UpdateStatus
from kapsa.devcluster.embedded.controllers.podstate import is_finished
from kapsa.devcluster.embedded.controllers.queue import Key, WorkQueue
from kapsa.devcluster.embedded.controllers.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.view import View
from kapsa.devcluster.embedded.controllers.workloads import Workloads
from kapsa.devcluster.embedded.storage.stored_form import decode, stored_form, with_revision

_ORPHAN_QUARANTINE = 40.0
"""Seconds after which pods of a node that no longer exists are removed."""


class Scheduler:
    """Gives pods a node."""

    name = "scheduler"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self.queue = WorkQueue(self.name, self._process)

    def start(self) -> None:
        self.retry()

    def retry(self) -> None:
        """The nodes changed, or one has more room: look at every waiting pod again."""
        for pod in self._view.unscheduled():
            self.queue.add(_key(pod))

    def notice(self, new: Object | None, old: Object | None) -> None:
        if new is None:
            if old is not None and old["spec"].get("nodeName") and self._view.unscheduled():
                self.retry()
        elif not new["spec"].get("nodeName") and (
            old is None or old["spec"].get("schedulingGates") != new["spec"].get("schedulingGates")
        ):
            self.queue.add(_key(new))

    async def _process(self, key: Key) -> None:
        pod = self._view.get(POD, *key)
        if pod is None or not _is_ours(pod):
            return
        now = self._backend.clock.now()
        wait = self._workloads.behaviour(pod).delays.schedule - seconds_since(
            pod["metadata"]["creationTimestamp"], now
        )
        if wait > 0:
            self.queue.add_after(key, wait)
            return
        node, message = placement.choose(pod, self._view.objects(NODE), self._view.crowd)
        if node is None:
            await self._refuse(pod, message, now)
            return
        self._bind(key, node, now)
        metadata = pod["metadata"]
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        await self._executor.note(Note(pod, "Scheduled", text))

    def _bind(self, key: Key, node: str, now: datetime) -> None:
        """What the binding subresource does: the one way to set a pod's node, and no change of its generation."""
        info = self._executor.info(POD)
        collection = self._backend.collection(info)
        live = collection.get(info.object_key(*key))
        if live is None:
            return
        pod = decode(live)
        pod["spec"]["nodeName"] = node
        status = pod.setdefault("status", {})
        status["conditions"] = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"] + [
            _scheduled("True", now)
        ]
        unchanged = stored_form(info, pod, live.revision)
        collection.put(with_revision(unchanged, self._backend.store.next_revision))

    async def _refuse(self, pod: Object, message: str, now: datetime) -> None:
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


def _is_ours(pod: Object) -> bool:
    spec = pod["spec"]
    ours = spec.get("schedulerName", "default-scheduler") == "default-scheduler"
    return ours and not spec.get("nodeName") and not spec.get("schedulingGates") and not is_deleting(pod)


def _scheduled(status: str, now: datetime) -> Object:
    return {
        "type": "PodScheduled",
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": render(now),
    }


class Kubelets:
    """Every node's kubelet in one."""

    name = "kubelet"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self._addresses = 0
        self.queue = WorkQueue(self.name, self._process)

    def start(self) -> None:
        self.retry()

    def retry(self) -> None:
        """Behaviours or nodes changed: look at every pod again."""
        for node in self._view.nodes_with_pods():
            for pod in self._view.pods_on(node):
                self.queue.add(_key(pod))

    def notice(self, new: Object | None, old: Object | None) -> None:
        if new is not None and new["spec"].get("nodeName"):
            self.queue.add(_key(new))

    async def _process(self, key: Key) -> None:
        pod = self._view.get(POD, *key)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        node = self._view.get(NODE, "", pod["spec"]["nodeName"])
        if node is None or self._workloads.is_gone(node["metadata"]["name"]):
            return
        behaviour = self._workloads.behaviour(pod)
        now = self._backend.clock.now()
        life = pods.live(pod, behaviour, _host_ip(node), self._pod_ip(pod), now)
        if life.status is not None:
            written = await self._executor.do(UpdateStatus(POD, {**pod, "status": life.status}))
            pod = written or pod
        for type_, reason, message in life.events:
            await self._executor.note(Note(pod, reason, message, type_))
        if life.remove:
            await self._executor.do(Delete(POD, pod, grace=0))
        elif life.again is not None:
            self.queue.add_after(key, life.again)

    def _pod_ip(self, pod: Object) -> str:
        known = (pod.get("status") or {}).get("podIP")
        if known:
            return str(known)
        self._addresses += 1
        return f"10.244.{self._addresses // 250 % 256}.{self._addresses % 250 + 1}"


def _host_ip(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    internal = [a["address"] for a in addresses if a["type"] == "InternalIP"]
    return internal[0] if internal else "10.0.0.1"


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
        self.queue = WorkQueue(self.name, self._process)

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


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

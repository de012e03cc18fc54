"""The kubelet."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import Delete, Note, UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, key_of
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes import pod_lifecycle
from kapsa.devcluster.workloads import Workloads


class Kubelet:
    """Controller that runs pods, on behalf of the kubelets of all nodes."""

    name = "kubelet"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self._addresses = 0
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all pods on nodes."""
        self.retry()

    def retry(self) -> None:
        """Enqueue all pods on nodes: behaviours or nodes changed."""
        for node in self._view.nodes_with_pods():
            for pod in self._view.pods_on(node):
                self.queue.add(key_of(pod))

    def observe(self, new: Object | None, old: Object | None) -> None:
        """Enqueue a changed pod that is on a node."""
        if new is not None and new["spec"].get("nodeName"):
            self.queue.add(key_of(new))

    async def _process(self, key: Key) -> None:
        pod = self._view.get(POD, *key)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        node = self._view.get(NODE, "", pod["spec"]["nodeName"])
        if node is None or self._workloads.is_gone(node["metadata"]["name"]):
            return
        behaviour = self._workloads.behaviour(pod)
        now = self._backend.clock.now()
        step = pod_lifecycle.advance(pod, behaviour, _host_ip(node), self._pod_ip(pod), now)
        if step.status is not None:
            written = await self._executor.do(UpdateStatus(POD, {**pod, "status": step.status}))
            pod = written or pod
        for type_, reason, message in step.events:
            await self._executor.note(Note(pod, reason, message, type_))
        if step.remove:
            await self._executor.do(Delete(POD, pod, grace=0))
        elif step.again is not None:
            self.queue.add_after(key, step.again)

    def _pod_ip(self, pod: Object) -> str:
        assigned = (pod.get("status") or {}).get("podIP")
        if assigned:
            return str(assigned)
        self._addresses += 1
        return f"10.244.{self._addresses // 250 % 256}.{self._addresses % 250 + 1}"


def _host_ip(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    internal = [a["address"] for a in addresses if a["type"] == "InternalIP"]
    return internal[0] if internal else "10.0.0.1"

"""The kubelets: run the pods of their nodes."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import NODE, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import Delete, Note, UpdateStatus
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue, key_of
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes import pod_lifecycle as pods
from kapsa.devcluster.workloads import Workloads


class Kubelet:
    """Every node's kubelet in one."""

    name = "kubelet"

    def __init__(self, backend: Backend, view: View, executor: Executor, workloads: Workloads) -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._workloads = workloads
        self._addresses = 0
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        self.retry()

    def retry(self) -> None:
        """Behaviours or nodes changed: look at every pod again."""
        for node in self._view.nodes_with_pods():
            for pod in self._view.pods_on(node):
                self.queue.add(key_of(pod))

    def notice(self, new: Object | None, old: Object | None) -> None:
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

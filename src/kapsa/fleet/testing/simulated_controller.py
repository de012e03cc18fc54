"""The controller of the sample operator, for clusters whose pods run no containers.

It does what the leading pod would do: hold the Lease, and report on each Gadget in its status. A pod that is not
ready does nothing, so that the controller stops and starts with the pods of a release.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from kapsa.fleet.testing.sample_chart import BEHAVIOUR_LABEL, CHART, GADGET, ControllerBehaviour
from kapsa.runtime import AlreadyExists, Client, ClientError, NotFound

__all__ = ["LEASE", "ControllerPods", "SimulatedController", "simulate_pods"]

LEASE = "gadget-operator-leader"
_LEASE_KIND = "coordination.k8s.io/v1/Lease"
_LEASE_SECONDS = 15
_BROKEN_SHARE = 10
_FAILURES = {
    ControllerBehaviour.CRASHES.value: "CrashLoopBackOff",
    ControllerBehaviour.NO_IMAGE.value: "ImagePullBackOff",
}
"""The reason that the kubelet would report for the containers of a version."""


class ControllerPods(Protocol):
    """The control that an embedded devcluster offers over its simulated pods: `DevCluster.workloads`."""

    def crash(self, selector: str | Mapping[str, str], *, exit_code: int = 1, after: float = 0.0) -> None:
        """End the containers of matching pods with an error, again and again."""
        ...

    def fail_image(self, pattern: str) -> None:
        """Make the pull of matching images fail."""
        ...


def simulate_pods(pods: ControllerPods) -> None:
    """Let pods of the sample operator crash if their version does, and fail to pull an image `missing/…`."""
    pods.crash({BEHAVIOUR_LABEL: ControllerBehaviour.CRASHES.value}, exit_code=1)
    pods.fail_image("missing/*")


class SimulatedController:
    """The controllers of all releases of the sample operator on one cluster; one pod leads at a time."""

    def __init__(self, client: Client, *, every: float = 0.5, crashes: bool = False) -> None:
        """Look at the pods once `every` seconds.

        With `crashes`, also report the crashes of bad versions in the status of their pods, on a cluster that offers
        no control over them.
        """
        self._client = client
        self._every = every
        self._crashes = crashes
        self._holder = ("", "")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run until the block ends."""
        task = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _repeat(self) -> None:
        while True:
            with contextlib.suppress(ClientError):  # a cluster that a test stops for a while
                await self.run_once()
            await asyncio.sleep(self._every)

    async def run_once(self) -> None:
        """Do what the leading pod would do now."""
        listed = await self._client.list("v1/Pod", label_selector={"app.kubernetes.io/name": CHART})
        ready = sorted((pod for pod in listed.items if _ready(pod)), key=_age)
        if self._crashes:
            ready = [pod for pod in ready if not await self._crash(pod)]
        names = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in ready}
        if self._holder not in names:
            await self._release()
        leader = next((pod for pod in ready if _name(pod) == self._holder), ready[0] if ready else None)
        if leader is None:
            return
        behaviour = leader["metadata"]["labels"].get(BEHAVIOUR_LABEL, "")
        if behaviour == ControllerBehaviour.IDLE:
            return
        await self._renew(leader)
        if behaviour == ControllerBehaviour.IGNORES:
            return
        await self._reconcile(breaks=behaviour == ControllerBehaviour.BREAKS_SOME)

    async def _crash(self, pod: dict[str, Any]) -> bool:
        """Report in the status of a pod that its version crashes, or has no image. Return whether it does."""
        reason = _FAILURES.get(pod["metadata"]["labels"].get(BEHAVIOUR_LABEL, ""))
        if reason is None:
            return False
        waiting = {"waiting": {"reason": reason, "message": "back-off"}}
        statuses = [
            {**each, "ready": False, "started": False, "restartCount": 3, "state": waiting}
            for each in pod["status"]["containerStatuses"]
        ]
        conditions = [
            {**each, "status": "False"} if each["type"] in ("Ready", "ContainersReady") else each
            for each in pod["status"]["conditions"]
        ]
        namespace, name = _name(pod)
        changed = {"status": {"containerStatuses": statuses, "conditions": conditions}}
        with contextlib.suppress(NotFound):
            await self._client.patch("v1/Pod", name, changed, namespace=namespace, subresource="status")
        return True

    async def _release(self) -> None:
        namespace, name = self._holder
        if name:
            with contextlib.suppress(NotFound):
                await self._client.patch(
                    _LEASE_KIND, LEASE, {"spec": {"holderIdentity": ""}}, namespace=namespace
                )
        self._holder = ("", "")

    async def _renew(self, leader: dict[str, Any]) -> None:
        namespace, name = _name(leader)
        self._holder = (namespace, name)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": f"{name}_{leader['metadata']['uid']}",
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now,
        }
        try:
            await self._client.patch(_LEASE_KIND, LEASE, {"spec": spec}, namespace=namespace)
        except NotFound:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": namespace},
                "spec": {**spec, "acquireTime": now},
            }
            with contextlib.suppress(AlreadyExists):
                await self._client.create(body)

    async def _reconcile(self, *, breaks: bool) -> None:
        gadgets = (await self._client.list(GADGET)).items
        for number, each in enumerate(sorted(gadgets, key=_name)):
            await self._report(each, broken=breaks and number % _BROKEN_SHARE == 0)

    async def _report(self, each: dict[str, Any], *, broken: bool) -> None:
        generation = each["metadata"]["generation"]
        condition = {
            "type": "Ready",
            "status": "False" if broken else "True",
            "reason": "Failed" if broken else "Reconciled",
            "observedGeneration": generation,
        }
        status = each.get("status") or {}
        present: dict[str, Any] = next(
            (one for one in status.get("conditions") or () if one["type"] == "Ready"), {}
        )
        if present.get("status") == condition["status"] and status.get("observedGeneration") == generation:
            return
        condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace, name = _name(each)
        stalled = {**condition, "type": "Stalled", "status": "True" if broken else "False"}
        changed = {"status": {"observedGeneration": generation, "conditions": [condition, stalled]}}
        with contextlib.suppress(NotFound):
            await self._client.patch(GADGET, name, changed, namespace=namespace, subresource="status")


def _ready(pod: Mapping[str, Any]) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _age(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _name(each: Mapping[str, Any]) -> tuple[str, str]:
    return each["metadata"]["namespace"], each["metadata"]["name"]

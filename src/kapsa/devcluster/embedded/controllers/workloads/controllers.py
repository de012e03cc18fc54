"""The controllers of workloads: they observe changes and carry out the plans of this room."""

from __future__ import annotations

import asyncio
from datetime import datetime

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor, is_terminating_namespace
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    CLAIM,
    CONTROLLER_REVISION,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.owner_controller import OwnerController, selector_of
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_of
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    BATCH_PAUSE,
    LARGEST_BATCH,
    Create,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_active
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, Retry, key_of
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.workloads import (
    cronjobs,
    daemonsets,
    deployments,
    jobs,
    replicasets,
    statefulsets,
)
from kapsa.devcluster.embedded.kinds.labels import matches, matches_map
from kapsa.devcluster.wire.status_errors import StatusError

_LARGE = 1000
"""Pods from which an owner waits before it runs again for a change of one of them."""
_PODS_PER_SECOND = 10_000
"""Pods that the runs of such an owner look at in a second, at most."""


class DeploymentController(OwnerController):
    """Controller of Deployments."""

    kind, account, dependents = DEPLOYMENT, "deployment-controller", (REPLICA_SET, POD)

    def _observe_dependent(self, obj: Object | None) -> None:
        super()._observe_dependent(obj)
        # The Recreate strategy waits until the last old pod is gone.
        holder = None if obj is None else controller_of(obj)
        if (
            obj is not None
            and obj["kind"] == POD.kind
            and holder is not None
            and holder["kind"] == REPLICA_SET.kind
        ):
            replica_set = self.view.get(REPLICA_SET, obj["metadata"]["namespace"], holder["name"])
            owner = None if replica_set is None else controller_of(replica_set)
            if owner is not None and "deletionTimestamp" in obj["metadata"]:
                self.queue.add((obj["metadata"]["namespace"], owner["name"]))

    def observe_orphan(self, kind: Kind, orphan: Object) -> None:
        if kind == REPLICA_SET:
            super().observe_orphan(kind, orphan)

    async def sync(self, key: Key, owner: Object) -> None:
        replica_sets = await self.claimed(REPLICA_SET, owner)
        pods = [pod for rs in replica_sets for pod in self.view.owned(POD, rs["metadata"]["uid"])]
        plan = deployments.plan(owner, replica_sets, pods, self.backend.clock.now())
        for action in plan.actions:
            if isinstance(action, Create) and await self._collides(action, owner):
                await self.executor.do(UpdateStatus(DEPLOYMENT, deployments.collided(owner)))
                return
        await self.carry_out(key, plan)

    async def _collides(self, action: Create, owner: Object) -> bool:
        taken = self.view.get(REPLICA_SET, owner["metadata"]["namespace"], action.object["metadata"]["name"])
        holder = None if taken is None else controller_of(taken)
        return taken is not None and (holder is None or holder["uid"] != owner["metadata"]["uid"])


class ReplicaSetController(OwnerController):
    """Controller of ReplicaSets."""

    kind, account, dependents = REPLICA_SET, "replicaset-controller", (POD,)

    def __init__(self, backend: Backend, view: View, executor: Executor) -> None:
        super().__init__(backend, view, executor)
        self._sizes: dict[Key, int] = {}
        """Number of pods of each large owner."""
        self._batches: dict[Key, datetime] = {}
        """Time of the last batch of the largest size of each owner."""

    def _observe_dependent(self, obj: Object | None) -> None:
        holder = None if obj is None else controller_of(obj)
        if obj is None or holder is None or holder["kind"] != self.kind.kind:
            return
        key = (obj["metadata"]["namespace"], holder["name"])
        size = self._sizes.get(key, 0)
        if size:
            # A run looks at each pod: one for each change of a pod would take the time of all others.
            self.queue.add_after(key, size / _PODS_PER_SECOND)
        else:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> None:
        if self.view.get(self.kind, *key) is None:
            self._sizes.pop(key, None)
            self._batches.pop(key, None)
        await super().reconcile(key)

    async def sync(self, key: Key, owner: Object) -> None:
        pods = await self.claimed(POD, owner)
        self._sizes.pop(key, None)
        if len(pods) > _LARGE:
            self._sizes[key] = len(pods)
        scale = replicasets.plan_scale(self.kind, owner, pods, self._related(owner))
        plan = self._in_batches(key, scale)
        # While the next batch waits, nothing is known beyond the failure of the last one.
        failure = None if plan is scale else replicasets.last_failure(owner)
        retries = False
        try:
            await self.carry_out(key, plan)
        except StatusError as error:
            if is_terminating_namespace(error):
                return
            failure, retries = error.message, True
        if key in self._sizes:
            # Each look at a large number of pods takes a while: requests get a turn in between.
            await asyncio.sleep(0)
        uid = owner["metadata"]["uid"]
        selector = selector_of(owner)
        pods = [p for p in self.view.owned(POD, uid) if matches(selector, p["metadata"].get("labels") or {})]
        owner = self.view.get(self.kind, *key) or owner
        await self.carry_out(
            key, replicasets.plan_status(self.kind, owner, pods, self.backend.clock.now(), failure)
        )
        if retries:
            # The status and an Event report the failure already: only retry.
            raise Retry

    def _in_batches(self, key: Key, plan: WritePlan) -> WritePlan:
        """Return a plan of the largest size only if the last one was a while ago."""
        if len(plan.actions) < LARGEST_BATCH:
            return plan
        now = self.backend.clock.now()
        last = self._batches.get(key)
        elapsed = BATCH_PAUSE if last is None else (now - last).total_seconds()
        if elapsed < BATCH_PAUSE:
            waiting = WritePlan()
            waiting.requeue_after(BATCH_PAUSE - elapsed)
            return waiting
        self._batches[key] = now
        plan.requeue_after(BATCH_PAUSE)
        return plan

    def _related(self, owner: Object) -> list[Object]:
        holder = controller_of(owner)
        if holder is None:
            return self.view.owned(POD, owner["metadata"]["uid"])
        siblings = self.view.owned(REPLICA_SET, holder["uid"]) if self.kind == REPLICA_SET else [owner]
        return [
            pod for rs in siblings for pod in self.view.owned(POD, rs["metadata"]["uid"]) if is_active(pod)
        ]


class ReplicationManager(ReplicaSetController):
    """Controller of ReplicationControllers, which are ReplicaSets with a map selector."""

    kind, account = REPLICATION_CONTROLLER, "replication-controller"

    def observe_orphan(self, kind: Kind, orphan: Object) -> None:
        for owner in self.view.objects(self.kind, orphan["metadata"]["namespace"]):
            selector = owner["spec"].get("selector")
            if selector and matches_map(selector, orphan["metadata"].get("labels") or {}):
                self.queue.add(key_of(owner))


class StatefulSetController(OwnerController):
    """Controller of StatefulSets."""

    kind, account, component = STATEFUL_SET, "statefulset-controller", "statefulset-controller"
    dependents = (POD,)

    async def sync(self, key: Key, owner: Object) -> None:
        name = owner["metadata"]["name"]
        pods = [p for p in await self.claimed(POD, owner) if statefulsets.parent_and_ordinal(p)[0] == name]
        history = self.view.owned(CONTROLLER_REVISION, owner["metadata"]["uid"])
        claims = {c["metadata"]["name"]: c for c in self.view.objects(CLAIM, owner["metadata"]["namespace"])}
        await self.carry_out(key, statefulsets.plan(owner, pods, history, claims, self.backend.clock.now()))


class DaemonSetController(OwnerController):
    """Controller of DaemonSets. A node whose eligibility may have changed enqueues them all."""

    kind, account, component = DAEMON_SET, "daemon-set-controller", "daemonset-controller"
    dependents = (POD, NODE)

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == NODE:
            if new is None or old is None or _eligibility_fields(new) != _eligibility_fields(old):
                self.start()
            return
        super().observe(kind, new, old)

    async def sync(self, key: Key, owner: Object) -> None:
        pods = await self.claimed(POD, owner)
        history = self.view.owned(CONTROLLER_REVISION, owner["metadata"]["uid"])
        plan = daemonsets.plan(owner, pods, self.view.objects(NODE), history, self.backend.clock.now())
        await self.carry_out(key, plan)


def _eligibility_fields(node: Object) -> tuple[object, object, object]:
    return node["metadata"].get("labels"), node["spec"].get("taints"), node["spec"].get("unschedulable")


class JobController(OwnerController):
    """Controller of Jobs."""

    kind, account, dependents = JOB, "job-controller", (POD,)

    async def sync(self, key: Key, owner: Object) -> None:
        managed = owner["spec"].get("managedBy")
        if managed in (None, "kubernetes.io/job-controller"):
            pods = await self.claimed(POD, owner)
            await self.carry_out(key, jobs.plan(owner, pods, self.backend.clock.now()))


class CronJobController(OwnerController):
    """Controller of CronJobs."""

    kind, account, component = CRON_JOB, "cronjob-controller", "cronjob-controller"
    dependents = (JOB,)

    def observe_orphan(self, kind: Kind, orphan: Object) -> None:
        """Do nothing: CronJobs do not adopt."""

    async def sync(self, key: Key, owner: Object) -> None:
        owned = self.view.owned(JOB, owner["metadata"]["uid"])
        await self.carry_out(key, cronjobs.plan(owner, owned, self.backend.clock.now()))


WORKLOAD_CONTROLLERS: tuple[type[OwnerController], ...] = (
    DeploymentController,
    ReplicaSetController,
    ReplicationManager,
    StatefulSetController,
    DaemonSetController,
    JobController,
    CronJobController,
)

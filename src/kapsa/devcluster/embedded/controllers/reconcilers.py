"""From changes to plans: which owner a change concerns, and what its plan needs to know."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers import (
    cronjobs,
    daemonsets,
    deployments,
    disruptions,
    endpoints,
    jobs,
    replicasets,
    statefulsets,
    volumes,
)
from kapsa.devcluster.embedded.controllers.executor import Executor, is_terminating_namespace
from kapsa.devcluster.embedded.controllers.kinds import (
    CLAIM,
    CONTROLLER_REVISION,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    ENDPOINTS,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
    STORAGE_CLASS,
    VOLUME,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.ownership import claim, controller_of
from kapsa.devcluster.embedded.controllers.plan import Create, Plan, Update, UpdateStatus
from kapsa.devcluster.embedded.controllers.podstate import is_active, is_finished
from kapsa.devcluster.embedded.controllers.queue import Key, Retry, WorkQueue
from kapsa.devcluster.embedded.controllers.view import View
from kapsa.devcluster.embedded.strategies.labels import matches, matches_map
from kapsa.devcluster.wire.status_errors import ApiError


class Reconciler:
    """Runs plans for one kind of owner."""

    kind: Kind
    account: str
    """ServiceAccount of the controller, which is also its name in Events unless it has another one."""
    component = ""
    dependents: tuple[Kind, ...] = ()
    """Kinds whose changes concern their controller, when it is of this kind."""

    def __init__(self, backend: Backend, view: View, executor: Executor) -> None:
        self.backend = backend
        self.view = view
        self.executor = executor
        self.queue = WorkQueue(self.account, self.reconcile)

    def start(self) -> None:
        for obj in self.view.objects(self.kind):
            self.queue.add(_key(obj))

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        """Something of an interesting kind changed."""
        if kind == self.kind:
            changed = new or old
            assert changed is not None
            self.queue.add(_key(changed))
            return
        for obj in (new, old):
            self._notice_dependent(obj)
        if new is not None and controller_of(new) is None:
            self.notice_orphan(kind, new)

    def _notice_dependent(self, obj: Object | None) -> None:
        holder = None if obj is None else controller_of(obj)
        if obj is not None and holder is not None and holder["kind"] == self.kind.kind:
            self.queue.add((obj["metadata"].get("namespace", ""), holder["name"]))

    def notice_orphan(self, kind: Kind, orphan: Object) -> None:
        """Something without a controller appeared: whoever selects it may adopt it."""
        for owner in self.view.objects(self.kind, orphan["metadata"].get("namespace", "")):
            if matches(owner["spec"].get("selector"), orphan["metadata"].get("labels") or {}):
                self.queue.add(_key(owner))

    async def reconcile(self, key: Key) -> None:
        owner = self.view.get(self.kind, *key)
        if owner is not None:
            await self.sync(key, owner)

    async def sync(self, key: Key, owner: Object) -> None:
        raise NotImplementedError

    async def carry_out(self, key: Key, plan: Plan) -> None:
        if plan.again is not None:
            self.queue.add_after(key, plan.again)
        await self.executor.run(plan)

    async def claimed(self, kind: Kind, owner: Object) -> list[Object]:
        """The owner's objects of a kind, after adopting and releasing what changed hands."""
        candidates = [
            *self.view.owned(kind, owner["metadata"]["uid"]),
            *self.view.orphans(kind, owner["metadata"]["namespace"]),
        ]
        mine, rewritten = claim(
            self.kind, owner, selector_of(owner), candidates, adoptable=lambda o: not is_finished(o)
        )
        for obj in rewritten:
            written = await self.executor.do(Update(kind, obj))
            holder = None if written is None else controller_of(written)
            if written is not None and holder is not None:
                mine.append(written)
        return mine


def selector_of(owner: Object) -> dict[str, object]:
    """The owner's selector in its object form."""
    selector: dict[str, object] = owner["spec"].get("selector") or {}
    if owner["kind"] == REPLICATION_CONTROLLER.kind:
        return {"matchLabels": selector}
    return selector


class Deployments(Reconciler):
    kind, account, dependents = DEPLOYMENT, "deployment-controller", (REPLICA_SET, POD)

    def _notice_dependent(self, obj: Object | None) -> None:
        super()._notice_dependent(obj)
        # The Recreate strategy waits for the last old pod to be gone.
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

    def notice_orphan(self, kind: Kind, orphan: Object) -> None:
        if kind == REPLICA_SET:
            super().notice_orphan(kind, orphan)

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


class ReplicaSets(Reconciler):
    kind, account, dependents = REPLICA_SET, "replicaset-controller", (POD,)

    async def sync(self, key: Key, owner: Object) -> None:
        pods = await self.claimed(POD, owner)
        failure: str | None = None
        plan = replicasets.plan_scale(self.kind, owner, pods, self._related(owner))
        try:
            await self.carry_out(key, plan)
        except ApiError as error:
            if is_terminating_namespace(error):
                return
            failure = error.message
        uid = owner["metadata"]["uid"]
        selector = selector_of(owner)
        pods = [p for p in self.view.owned(POD, uid) if matches(selector, p["metadata"].get("labels") or {})]
        owner = self.view.get(self.kind, *key) or owner
        await self.carry_out(
            key, replicasets.plan_status(self.kind, owner, pods, self.backend.clock.now(), failure)
        )
        if failure is not None:
            # Told in the status and by an Event; nothing more to say, only to try again.
            raise Retry

    def _related(self, owner: Object) -> list[Object]:
        holder = controller_of(owner)
        if holder is None:
            return self.view.owned(POD, owner["metadata"]["uid"])
        siblings = self.view.owned(REPLICA_SET, holder["uid"]) if self.kind == REPLICA_SET else [owner]
        return [
            pod for rs in siblings for pod in self.view.owned(POD, rs["metadata"]["uid"]) if is_active(pod)
        ]


class ReplicationControllers(ReplicaSets):
    kind, account = REPLICATION_CONTROLLER, "replication-controller"

    def notice_orphan(self, kind: Kind, orphan: Object) -> None:
        for owner in self.view.objects(self.kind, orphan["metadata"]["namespace"]):
            selector = owner["spec"].get("selector")
            if selector and matches_map(selector, orphan["metadata"].get("labels") or {}):
                self.queue.add(_key(owner))


class StatefulSets(Reconciler):
    kind, account, component = STATEFUL_SET, "statefulset-controller", "statefulset-controller"
    dependents = (POD,)

    async def sync(self, key: Key, owner: Object) -> None:
        name = owner["metadata"]["name"]
        pods = [p for p in await self.claimed(POD, owner) if statefulsets.parent_and_ordinal(p)[0] == name]
        history = self.view.owned(CONTROLLER_REVISION, owner["metadata"]["uid"])
        claims = {c["metadata"]["name"]: c for c in self.view.objects(CLAIM, owner["metadata"]["namespace"])}
        await self.carry_out(key, statefulsets.plan(owner, pods, history, claims, self.backend.clock.now()))


class DaemonSets(Reconciler):
    kind, account, component = DAEMON_SET, "daemon-set-controller", "daemonset-controller"
    dependents = (POD, NODE)

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == NODE:
            if new is None or old is None or _placement_facts(new) != _placement_facts(old):
                self.start()
            return
        super().notice(kind, new, old)

    async def sync(self, key: Key, owner: Object) -> None:
        pods = await self.claimed(POD, owner)
        history = self.view.owned(CONTROLLER_REVISION, owner["metadata"]["uid"])
        plan = daemonsets.plan(owner, pods, self.view.objects(NODE), history, self.backend.clock.now())
        await self.carry_out(key, plan)


def _placement_facts(node: Object) -> tuple[object, object, object]:
    return node["metadata"].get("labels"), node["spec"].get("taints"), node["spec"].get("unschedulable")


class Jobs(Reconciler):
    kind, account, dependents = JOB, "job-controller", (POD,)

    async def sync(self, key: Key, owner: Object) -> None:
        managed = owner["spec"].get("managedBy")
        if managed in (None, "kubernetes.io/job-controller"):
            pods = await self.claimed(POD, owner)
            await self.carry_out(key, jobs.plan(owner, pods, self.backend.clock.now()))


class CronJobs(Reconciler):
    kind, account, component = CRON_JOB, "cronjob-controller", "cronjob-controller"
    dependents = (JOB,)

    def notice_orphan(self, kind: Kind, orphan: Object) -> None:
        """CronJobs adopt nothing."""

    async def sync(self, key: Key, owner: Object) -> None:
        owned = self.view.owned(JOB, owner["metadata"]["uid"])
        await self.carry_out(key, cronjobs.plan(owner, owned, self.backend.clock.now()))


class Endpoints(Reconciler):
    kind, account, dependents = SERVICE, "endpoint-controller", (POD, ENDPOINT_SLICE)

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == POD:
            self._notice_pod(new, old)
        elif kind == ENDPOINT_SLICE:
            if new is None:
                self._notice_dependent(old)
        else:
            super().notice(kind, new, old)

    def _notice_pod(self, new: Object | None, old: Object | None) -> None:
        changed = new or old
        assert changed is not None
        services: Iterable[Object] = self.view.objects(SERVICE, changed["metadata"]["namespace"])
        for service in services:
            selector = service["spec"].get("selector")
            if selector and any(
                matches_map(selector, o["metadata"].get("labels") or {}) for o in (new, old) if o is not None
            ):
                self.queue.add(_key(service))

    async def sync(self, key: Key, owner: Object) -> None:
        namespace = owner["metadata"]["namespace"]
        slices = [
            s
            for s in self.view.objects(ENDPOINT_SLICE, namespace)
            if (s["metadata"].get("labels") or {}).get(endpoints.SERVICE_LABEL) == owner["metadata"]["name"]
            and (s["metadata"].get("labels") or {}).get(endpoints.MANAGED_LABEL) == endpoints.MANAGER
        ]
        current = self.view.get(ENDPOINTS, *key)
        pods = self.view.objects(POD, namespace)
        plan = endpoints.plan(owner, pods, current, slices, self.backend.clock.now())
        await self.carry_out(key, plan)

    async def reconcile(self, key: Key) -> None:
        if self.view.get(SERVICE, *key) is None:
            # Slices go with their owner; Endpoints have none and go by name.
            leftover = self.view.get(ENDPOINTS, *key)
            if leftover is not None:
                await self.executor.run(endpoints.plan_removal(leftover))
            return
        await super().reconcile(key)


class DisruptionBudgets(Reconciler):
    kind, account, component = DISRUPTION_BUDGET, "disruption-controller", "controllermanager"
    dependents = (POD,)

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == self.kind:
            super().notice(kind, new, old)
            return
        changed = new or old
        assert changed is not None
        self.notice_orphan(kind, changed)

    async def sync(self, key: Key, owner: Object) -> None:
        pods = self.view.objects(POD, owner["metadata"]["namespace"])
        await self.carry_out(key, disruptions.plan(owner, pods, self._scale_of, self.backend.clock.now()))

    def _scale_of(self, pod: Object) -> int:
        holder = controller_of(pod)
        scaled = {k.kind: k for k in (REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER)}
        if holder is None or holder["kind"] not in scaled:
            return 1
        owner = self.view.get(scaled[holder["kind"]], pod["metadata"]["namespace"], holder["name"])
        above = None if owner is None else controller_of(owner)
        if above is not None and above["kind"] == DEPLOYMENT.kind:
            owner = self.view.get(DEPLOYMENT, pod["metadata"]["namespace"], above["name"])
        return 0 if owner is None else int(owner["spec"].get("replicas", 1))


class Claims(Reconciler):
    kind, account = CLAIM, "persistent-volume-binder"
    component = "persistentvolume-controller"
    dependents = (VOLUME, STORAGE_CLASS, POD)

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == CLAIM:
            super().notice(kind, new, old)
        elif kind == VOLUME:
            reference = ((new or old or {}).get("spec") or {}).get("claimRef")
            if reference:
                self.queue.add((reference["namespace"], reference["name"]))
            elif new is not None:
                self.start()
        elif kind == STORAGE_CLASS and new is not None:
            self.start()
        elif kind == POD and old is not None and (new is None or is_finished(new)):
            for volume in old["spec"].get("volumes") or ():
                if volume.get("persistentVolumeClaim"):
                    name = volume["persistentVolumeClaim"]["claimName"]
                    self.queue.add((old["metadata"]["namespace"], name))

    async def sync(self, key: Key, owner: Object) -> None:
        plan = volumes.plan_claim(
            owner,
            self.view.objects(VOLUME),
            self.view.objects(STORAGE_CLASS),
            self.view.objects(POD, owner["metadata"]["namespace"]),
            self.backend.clock.now(),
        )
        await self.carry_out(key, plan)


class Volumes(Reconciler):
    kind, account, dependents = VOLUME, "persistent-volume-binder", (CLAIM,)
    component = "persistentvolume-controller"

    def notice(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == VOLUME:
            super().notice(kind, new, old)
        elif new is None and old is not None and old["spec"].get("volumeName"):
            self.queue.add(("", old["spec"]["volumeName"]))

    async def sync(self, key: Key, owner: Object) -> None:
        reference = owner["spec"].get("claimRef") or {}
        claimed_by = None
        if reference:
            claimed_by = self.view.get(CLAIM, reference.get("namespace", ""), reference.get("name", ""))
        await self.carry_out(key, volumes.plan_volume(owner, claimed_by))


RECONCILERS: tuple[type[Reconciler], ...] = (
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
    DaemonSets,
    Jobs,
    CronJobs,
    Endpoints,
    DisruptionBudgets,
    Claims,
    Volumes,
)


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

"""The controllers of Services, disruption budgets and volumes: they carry out the plans of this room."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.devcluster.embedded.controllers.housekeeping import disruptions, endpoints, volumes
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    ATTRIBUTES_CLASS,
    CLAIM,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    ENDPOINTS,
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
from kapsa.devcluster.embedded.controllers.machinery.owner_controller import OwnerController
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_of
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, key_of
from kapsa.devcluster.embedded.kinds.labels import matches_map


class EndpointsController(OwnerController):
    """Controller of Endpoints and EndpointSlices, one pair for each Service."""

    kind, account, dependents = SERVICE, "endpoint-controller", (POD, ENDPOINT_SLICE)

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == POD:
            self._observe_pod(new, old)
        elif kind == ENDPOINT_SLICE:
            if new is None:
                self._observe_dependent(old)
        else:
            super().observe(kind, new, old)

    def _observe_pod(self, new: Object | None, old: Object | None) -> None:
        changed = new or old
        assert changed is not None
        services: Iterable[Object] = self.view.objects(SERVICE, changed["metadata"]["namespace"])
        for service in services:
            selector = service["spec"].get("selector")
            if selector and any(
                matches_map(selector, o["metadata"].get("labels") or {}) for o in (new, old) if o is not None
            ):
                self.queue.add(key_of(service))

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
            # Slices are garbage collected. Endpoints have no owner: they are deleted by name.
            leftover = self.view.get(ENDPOINTS, *key)
            if leftover is not None:
                await self.executor.run(endpoints.plan_removal(leftover))
            return
        await super().reconcile(key)


class DisruptionController(OwnerController):
    """Controller of PodDisruptionBudgets."""

    kind, account, component = DISRUPTION_BUDGET, "disruption-controller", "controllermanager"
    dependents = (POD,)

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == self.kind:
            super().observe(kind, new, old)
            return
        changed = new or old
        assert changed is not None
        self.observe_orphan(kind, changed)

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


class ClaimController(OwnerController):
    """Controller of PersistentVolumeClaims: binding, provisioning, protection."""

    kind, account = CLAIM, "persistent-volume-binder"
    component = "persistentvolume-controller"
    dependents = (VOLUME, STORAGE_CLASS, POD)

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == CLAIM:
            super().observe(kind, new, old)
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


class VolumeController(OwnerController):
    """Controller of PersistentVolumes: release and protection."""

    kind, account, dependents = VOLUME, "persistent-volume-binder", (CLAIM,)
    component = "persistentvolume-controller"

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == VOLUME:
            super().observe(kind, new, old)
        elif new is None and old is not None and old["spec"].get("volumeName"):
            self.queue.add(("", old["spec"]["volumeName"]))

    async def sync(self, key: Key, owner: Object) -> None:
        reference = owner["spec"].get("claimRef") or {}
        claim = None
        if reference:
            claim = self.view.get(CLAIM, reference.get("namespace", ""), reference.get("name", ""))
        await self.carry_out(key, volumes.plan_volume(owner, claim))


class AttributesClassController(OwnerController):
    """Controller of VolumeAttributesClasses: protection while in use."""

    kind, dependents = ATTRIBUTES_CLASS, (CLAIM, VOLUME)
    account = component = "volumeattributesclass-protection-controller"

    def observe(self, kind: Kind, new: Object | None, old: Object | None) -> None:
        if kind == ATTRIBUTES_CLASS:
            super().observe(kind, new, old)
        elif old is not None:
            used = volumes.attributes_classes_of(new) if new is not None else set()
            for name in volumes.attributes_classes_of(old) - used:
                self.queue.add(("", name))

    async def sync(self, key: Key, owner: Object) -> None:
        plan = volumes.plan_attributes_class(owner, self.view.objects(CLAIM), self.view.objects(VOLUME))
        await self.carry_out(key, plan)


HOUSEKEEPING_CONTROLLERS: tuple[type[OwnerController], ...] = (
    EndpointsController,
    DisruptionController,
    ClaimController,
    VolumeController,
    AttributesClassController,
)

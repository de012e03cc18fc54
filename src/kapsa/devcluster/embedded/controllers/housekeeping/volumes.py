"""The plans of claims and volumes: provisioning, binding, and protection while in use."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import ATTRIBUTES_CLASS, CLAIM, VOLUME, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    Create,
    Delete,
    Note,
    RecordEvent,
    Update,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.controllers.machinery.volume_choice import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    find_volume,
    is_bound,
    is_delayed,
    is_reserved,
    misfit,
    reserved_for,
)
from kapsa.devcluster.embedded.strategies.cluster.storage import (
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
)
from kapsa.devcluster.embedded.strategies.cluster.storage_classes import ATTRIBUTES_CLASS_PROTECTION
from kapsa.schemas.quantities import parse

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROVISIONER = "devcluster.kapsa.dev/memory"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def default_class(classes: list[Object]) -> str | None:
    """Return the name of the default StorageClass, the newest if several are marked."""
    marked = [c for c in classes if (c["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    marked.sort(key=lambda c: (c["metadata"]["creationTimestamp"], c["metadata"]["name"]))
    return marked[-1]["metadata"]["name"] if marked else None


def plan_claim(
    claim: Object, volumes: list[Object], classes: list[Object], pods: list[Object], now: datetime
) -> WritePlan:
    """Plan the next step of a PersistentVolumeClaim."""
    plan = WritePlan()
    if is_deleting(claim):
        _release_claim(plan, claim, pods)
        return plan
    if is_bound(claim):
        _grow(plan, claim)
        return plan
    class_name = claim["spec"].get("storageClassName")
    if class_name is None:
        class_name = default_class(classes)
        if class_name is not None:
            plan.do(Update(CLAIM, {**claim, "spec": {**claim["spec"], "storageClassName": class_name}}))
            return plan
    if claim["spec"].get("volumeName"):
        _bind_requested(plan, claim, volumes)
    else:
        _bind_any(plan, claim, volumes, classes, pods, now)
    return plan


def _bind_requested(plan: WritePlan, claim: Object, volumes: list[Object]) -> None:
    """Plan to bind a claim to the volume that it names, or record why that is impossible."""
    name = claim["spec"]["volumeName"]
    volume = next((each for each in volumes if each["metadata"]["name"] == name), None)
    if volume is None:
        return
    if not volume["spec"].get("claimRef"):
        if why := misfit(volume, claim):
            _warn(plan, claim, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            return
    elif not is_reserved(volume, claim):
        _warn(plan, claim, "FailedBinding", f'volume "{name}" already bound to a different claim.')
        return
    _bind(plan, claim, volume)


def _warn(plan: WritePlan, claim: Object, reason: str, text: str) -> None:
    plan.do(RecordEvent(Note(claim, reason, text, "Warning", "persistentvolume-controller")))


def _bind_any(
    plan: WritePlan,
    claim: Object,
    volumes: list[Object],
    classes: list[Object],
    pods: list[Object],
    now: datetime,
) -> None:
    """Plan to bind a claim to the best volume, or to provision one."""
    delayed = is_delayed(claim, classes)
    volume = find_volume(claim, volumes, lambda volume: not delayed)
    if volume is not None:
        _bind(plan, claim, volume)
    elif delayed and SELECTED_NODE not in (claim["metadata"].get("annotations") or {}):
        _await_consumer(plan, claim, pods)
    else:
        _provision(plan, claim, claim["spec"].get("storageClassName") or "", classes, now)


def _await_consumer(plan: WritePlan, claim: Object, pods: list[Object]) -> None:
    names = [p["metadata"]["name"] for p in pods if not p["spec"].get("nodeName") and _uses(p, claim)]
    reason, text = "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
    if names:
        noun = "pods" if len(names) > 1 else "pod"
        reason, text = "WaitForPodScheduled", f"waiting for {noun} {','.join(names)} to be scheduled"
    plan.do(RecordEvent(Note(claim, reason, text, "Normal", "persistentvolume-controller")))


def _bind(plan: WritePlan, claim: Object, volume: Object) -> None:
    """Plan the next write of a binding: volume before claim, spec before status."""
    metadata = claim["metadata"]
    if (volume["spec"].get("claimRef") or {}).get("uid") != metadata["uid"]:
        plan.do(Update(VOLUME, reserved_for(volume, claim)))
        return
    if (volume.get("status") or {}).get("phase") != "Bound":
        plan.do(
            UpdateStatus(VOLUME, {**volume, "status": {**(volume.get("status") or {}), "phase": "Bound"}})
        )
    name = volume["metadata"]["name"]
    annotations = dict(metadata.get("annotations") or {})
    if claim["spec"].get("volumeName") != name or BIND_COMPLETED not in annotations:
        annotations[BIND_COMPLETED] = "yes"
        if claim["spec"].get("volumeName") != name:
            annotations[BOUND_BY_CONTROLLER] = "yes"
        changed = {**claim, "spec": {**claim["spec"], "volumeName": name}}
        plan.do(Update(CLAIM, {**changed, "metadata": {**metadata, "annotations": annotations}}))
        return
    status = {
        "phase": "Bound",
        "accessModes": volume["spec"].get("accessModes"),
        "capacity": volume["spec"].get("capacity"),
    }
    plan.do(UpdateStatus(CLAIM, {**claim, "status": status}))


def _provision(plan: WritePlan, claim: Object, class_name: str, classes: list[Object], now: datetime) -> None:
    storage_class = next((c for c in classes if c["metadata"]["name"] == class_name), None)
    if storage_class is None:
        text = (
            f'storageclass.storage.k8s.io "{class_name}" not found'
            if class_name
            else "no persistent volumes available for this claim and no storage class is set"
        )
        reason, kind = ("ProvisioningFailed", "Warning") if class_name else ("FailedBinding", "Normal")
        plan.do(RecordEvent(Note(claim, reason, text, kind, "persistentvolume-controller")))
        return
    if storage_class["provisioner"] != PROVISIONER:
        return
    plan.do(Create(VOLUME, _volume(claim, storage_class, now), exists_ok=True))


def _volume(claim: Object, storage_class: Object, now: datetime) -> Object:
    metadata = claim["metadata"]
    name = f"pvc-{metadata['uid']}"
    spec: dict[str, Any] = {
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "accessModes": claim["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        "hostPath": {"path": f"/var/lib/devcluster/{name}", "type": "DirectoryOrCreate"},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": "v1",
            "resourceVersion": metadata["resourceVersion"],
        },
    }
    if attributes_class := claim["spec"].get("volumeAttributesClassName"):
        spec["volumeAttributesClassName"] = attributes_class
    annotations = {"pv.kubernetes.io/provisioned-by": storage_class["provisioner"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
        "status": {"phase": "Pending", "lastPhaseTransitionTime": render(now)},
    }


def _grow(plan: WritePlan, claim: Object) -> None:
    """Plan to expand a bound claim that requests more storage, at once."""
    requested = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    status = claim.get("status") or {}
    current = (status.get("capacity") or {}).get("storage")
    if requested and current and parse(requested) > parse(current):
        capacity = {**status["capacity"], "storage": requested}
        plan.do(UpdateStatus(CLAIM, {**claim, "status": {**status, "capacity": capacity}}))


def _release_claim(plan: WritePlan, claim: Object, pods: list[Object]) -> None:
    finalizers = claim["metadata"].get("finalizers") or []
    if CLAIM_PROTECTION not in finalizers or any(_uses(pod, claim) for pod in pods):
        return
    left = [f for f in finalizers if f != CLAIM_PROTECTION]
    plan.do(Update(CLAIM, {**claim, "metadata": {**claim["metadata"], "finalizers": left}}))


def _uses(pod: Object, claim: Object) -> bool:
    if is_finished(pod):
        return False
    name = claim["metadata"]["name"]
    sources = [v.get("persistentVolumeClaim") or {} for v in pod["spec"].get("volumes") or ()]
    return any(source.get("claimName") == name for source in sources)


def plan_volume(volume: Object, claim: Object | None) -> WritePlan:
    """Plan the next step of a PersistentVolume: available, or released when its claim is gone."""
    plan = WritePlan()
    status, spec = volume.get("status") or {}, volume["spec"]
    reference = spec.get("claimRef")
    bound = claim is not None and reference is not None and claim["metadata"]["uid"] == reference.get("uid")
    if is_deleting(volume):
        finalizers = volume["metadata"].get("finalizers") or []
        if VOLUME_PROTECTION in finalizers and not bound:
            left = [f for f in finalizers if f != VOLUME_PROTECTION]
            plan.do(Update(VOLUME, {**volume, "metadata": {**volume["metadata"], "finalizers": left}}))
        return plan
    if reference is None or not reference.get("uid"):
        if status.get("phase") in (None, "Pending"):
            plan.do(UpdateStatus(VOLUME, {**volume, "status": {**status, "phase": "Available"}}))
    elif not bound and status.get("phase") == "Bound":
        if spec.get("persistentVolumeReclaimPolicy") == "Delete":
            plan.do(Delete(VOLUME, volume))
        else:
            plan.do(UpdateStatus(VOLUME, {**volume, "status": {**status, "phase": "Released"}}))
    return plan


def plan_attributes_class(attributes_class: Object, claims: list[Object], volumes: list[Object]) -> WritePlan:
    """Plan the next step of a VolumeAttributesClass: it goes when no claim and no volume names it."""
    plan = WritePlan()
    metadata = attributes_class["metadata"]
    finalizers = metadata.get("finalizers") or []
    if not is_deleting(attributes_class) or ATTRIBUTES_CLASS_PROTECTION not in finalizers:
        return plan
    if any(metadata["name"] in attributes_classes_of(user) for user in (*claims, *volumes)):
        return plan
    left = [finalizer for finalizer in finalizers if finalizer != ATTRIBUTES_CLASS_PROTECTION]
    plan.do(Update(ATTRIBUTES_CLASS, {**attributes_class, "metadata": {**metadata, "finalizers": left}}))
    return plan


def attributes_classes_of(user: Object) -> set[str]:
    """Return the names of the VolumeAttributesClasses that a claim or a volume has or is to get."""
    spec, status = user["spec"], user.get("status") or {}
    requested = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), requested)
    return {name for name in names if name}

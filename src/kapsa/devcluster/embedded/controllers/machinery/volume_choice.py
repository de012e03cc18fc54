"""The choice of a volume for a claim, as kube-controller-manager and kube-scheduler make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.schemas.quantities import parse

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim whose volume is provisioned for this node."""


def is_bound(claim: Object) -> bool:
    """Return whether a claim has its volume."""
    return (claim.get("status") or {}).get("phase") == "Bound"


def is_delayed(claim: Object, classes: Iterable[Object]) -> bool:
    """Return whether the class of a claim binds it only once a pod that uses it is scheduled."""
    name = claim["spec"].get("storageClassName")
    modes = (c.get("volumeBindingMode") for c in classes if c["metadata"]["name"] == name)
    return bool(name) and next(modes, None) == "WaitForFirstConsumer"


def is_reserved(volume: Object, claim: Object) -> bool:
    """Return whether a volume is bound to a claim, or reserved for it by its name."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (metadata["namespace"], metadata["name"]):
        return False
    return reference.get("uid") in (None, "", metadata["uid"])


def reserved_for(volume: Object, claim: Object) -> Object:
    """Return a volume that is bound to a claim, as it is written before the claim refers to it."""
    metadata = claim["metadata"]
    annotations = dict(volume["metadata"].get("annotations") or {})
    if not is_reserved(volume, claim):
        annotations[BOUND_BY_CONTROLLER] = "yes"
    reference = {
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "v1",
        "resourceVersion": metadata["resourceVersion"],
    }
    spec = {**volume["spec"], "claimRef": reference}
    return {**volume, "spec": spec, "metadata": {**volume["metadata"], "annotations": annotations}}


def misfit(volume: Object, claim: Object, *, any_class: bool = False) -> str:
    """Return why a volume does not satisfy a claim, in the real binder's words; empty if it does."""
    offered, claimed = volume["spec"], claim["spec"]
    requested = ((claimed.get("resources") or {}).get("requests") or {}).get("storage", "0")
    if is_deleting(volume):
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if parse((offered.get("capacity") or {}).get("storage", "0")) < parse(requested):
        return "requested PV is too small"
    if not any_class and _differ(volume, claim, "storageClassName"):
        return "storageClassName does not match"
    if _differ(volume, claim, "volumeAttributesClassName"):
        return "volumeAttributesClassName does not match"
    if _differ(volume, claim, "volumeMode", "Filesystem"):
        return "incompatible volumeMode"
    if not set(claimed.get("accessModes") or ()) <= set(offered.get("accessModes") or ()):
        return "incompatible accessMode"
    return ""


def _differ(volume: Object, claim: Object, field: str, default: str = "") -> bool:
    return (volume["spec"].get(field) or default) != (claim["spec"].get(field) or default)


def find_volume(
    claim: Object, volumes: Iterable[Object], allowed: Callable[[Object], bool] = lambda volume: True
) -> Object | None:
    """Return the volume that is reserved for a claim, else the smallest available one that fits and is allowed."""
    fitting = []
    for volume in volumes:
        reserved = is_reserved(volume, claim)
        if misfit(volume, claim, any_class=reserved):
            continue
        if reserved:
            return volume
        if _is_available(volume) and _selects(claim, volume) and allowed(volume):
            size = parse(volume["spec"]["capacity"]["storage"])
            fitting.append((size, volume["metadata"]["name"], volume))
    return min(fitting, key=lambda entry: entry[:2])[2] if fitting else None


def _is_available(volume: Object) -> bool:
    return not volume["spec"].get("claimRef") and (volume.get("status") or {}).get("phase") == "Available"


def _selects(claim: Object, volume: Object) -> bool:
    selector = claim["spec"].get("selector")
    return selector is None or matches(selector, volume["metadata"].get("labels") or {})

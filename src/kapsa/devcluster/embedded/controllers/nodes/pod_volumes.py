"""The claims of a pod: whether they allow it to be scheduled, and what it takes to bind those that wait for it."""

from __future__ import annotations

from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    CLAIM,
    POD,
    STORAGE_CLASS,
    VOLUME,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import Update, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.volume_choice import (
    SELECTED_NODE,
    find_volume,
    is_bound,
    is_delayed,
    reserved_for,
)
from kapsa.devcluster.embedded.controllers.nodes.filters import (
    ClusterState,
    Misfit,
    NodeFilter,
    RejectedPodError,
)
from kapsa.devcluster.embedded.controllers.nodes.node_selection import matches_terms

_IN_USE = Misfit(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    preemptible=True,
)
_NO_VOLUME = Misfit("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
_NONE_AVAILABLE = Misfit("node(s) didn't find available persistent volumes to bind")
_ELSEWHERE = Misfit("node(s) didn't match PersistentVolume's node affinity")
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


def claim_names(pod: Object) -> list[str]:
    """Return the names of the claims that a pod uses."""
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or ())
    return [source["claimName"] for source in sources if source]


def volume_filter(pod: Object, state: ClusterState) -> NodeFilter | None:
    """Return the filter of a pod with claims, or None. Raises RejectedPodError if no node would do."""
    names = claim_names(pod)
    if not names:
        return None
    claims = [_usable(state, pod["metadata"]["namespace"], name) for name in names]
    classes = state.objects(STORAGE_CLASS)
    if any(not is_bound(claim) and not is_delayed(claim, classes) for claim in claims):
        raise RejectedPodError("pod has unbound immediate PersistentVolumeClaims")
    in_use = any(_is_in_use(state, claim) for claim in claims)

    def check(node: Object) -> Misfit | None:
        if in_use:
            return _IN_USE
        reasons = (_check(claim, node, state, classes) for claim in claims)
        return next((reason for reason in reasons if reason is not None), None)

    return check


def _usable(state: ClusterState, namespace: str, name: str) -> Object:
    claim = state.get(CLAIM, namespace, name)
    if claim is None:
        raise RejectedPodError(f'persistentvolumeclaim "{name}" not found')
    if is_deleting(claim):
        raise RejectedPodError(f'persistentvolumeclaim "{name}" is being deleted')
    return claim


def _is_in_use(state: ClusterState, claim: Object) -> bool:
    if "ReadWriteOncePod" not in (claim["spec"].get("accessModes") or ()):
        return False
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    return any(
        other["spec"].get("nodeName") and not is_finished(other) and name in claim_names(other)
        for other in state.objects(POD, namespace)
    )


def _check(claim: Object, node: Object, state: ClusterState, classes: list[Object]) -> Misfit | None:
    if is_bound(claim):
        volume = state.get(VOLUME, "", claim["spec"].get("volumeName") or "")
        if volume is None:
            return _NO_VOLUME
        return None if _reaches(volume, node) else _ELSEWHERE
    if _is_provisioned(claim, classes) or _volume_for(claim, node, state.objects(VOLUME)) is not None:
        return None
    return _NONE_AVAILABLE


def _is_provisioned(claim: Object, classes: list[Object]) -> bool:
    name = claim["spec"].get("storageClassName")
    return any(c["metadata"]["name"] == name and c["provisioner"] != _NO_PROVISIONER for c in classes)


def _volume_for(claim: Object, node: Object, volumes: list[Object]) -> Object | None:
    return find_volume(claim, volumes, lambda volume: _reaches(volume, node))


def _reaches(volume: Object, node: Object) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or matches_terms(required, node)


def plan_claims(pod: Object, node: Object, state: ClusterState) -> WritePlan | None:
    """Plan to bind the claims that waited for this pod to volumes of its node. None if all claims are bound."""
    namespace = pod["metadata"]["namespace"]
    claims = [state.get(CLAIM, namespace, name) for name in claim_names(pod)]
    unbound = [claim for claim in claims if claim is not None and not is_bound(claim)]
    if not unbound:
        return None
    plan, volumes = WritePlan(), state.objects(VOLUME)
    for claim in unbound:
        volume = _volume_for(claim, node, volumes)
        if volume is None:
            _select_node(plan, claim, node["metadata"]["name"])
            continue
        volumes = [each for each in volumes if each is not volume]
        if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            plan.do(Update(VOLUME, reserved_for(volume, claim)))
    return plan


def _select_node(plan: WritePlan, claim: Object, node: str) -> None:
    annotations = claim["metadata"].get("annotations") or {}
    if SELECTED_NODE not in annotations:
        changed = {**annotations, SELECTED_NODE: node}
        plan.do(Update(CLAIM, {**claim, "metadata": {**claim["metadata"], "annotations": changed}}))

"""Readers of a Secret in an environment's namespace: what would see its content as soon as it is created.

A volume or a variable may be optional, and then waits for a Secret that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kapsa.adapters.manifests.pod_templates import pod_spec, reads_secret
from kapsa.environments.namespace_objects.children import JOB, RENDERED_KINDS, controller_uid, shown
from kapsa.environments.namespace_objects.jobs import is_unfinished
from kapsa.environments.step_run import Manifest, StepRun

__all__ = ["pods_that_read", "workloads_that_read"]

_DEPLOYMENT, _REPLICA_SET = "apps/v1/Deployment", "apps/v1/ReplicaSet"
_STATEFUL_SET, _REVISION = "apps/v1/StatefulSet", "apps/v1/ControllerRevision"
_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"})


def workloads_that_read(visit: StepRun, secret: str) -> list[str]:
    """Return the workloads whose pods take the content of a Secret."""
    return [
        shown(manifest)
        for kind in RENDERED_KINDS
        if kind.rpartition("/")[2] in _WORKLOADS
        for live in visit.ctx.list(kind, namespace=visit.namespace)
        if _reads(manifest := _typed(live, kind), secret)
    ]


async def pods_that_read(visit: StepRun, secret: str) -> list[str]:
    """Return the pods that take the content of a Secret, and what creates such pods from an earlier template.

    An update has not replaced these pods yet. A Job of a CronJob keeps its template, and may wait for its next attempt
    without a pod. A Deployment that is paused may scale up an earlier ReplicaSet. A StatefulSet with a partition
    creates pods again from its earlier revision.
    """
    readers: list[str] = []
    for kind, is_active in _LIVE.items():
        listed = (await visit.ctx.client.list(kind, namespace=visit.namespace)).items
        readers += [
            shown(manifest)
            for live in listed
            if is_active(live) and _reads(manifest := _typed(live, kind), secret)
        ]
    return [
        *readers,
        *await _replica_sets_that_read(visit, secret),
        *await _revisions_that_read(visit, secret),
    ]


async def _replica_sets_that_read(visit: StepRun, secret: str) -> list[str]:
    """Return the ReplicaSets that have pods that take the content of a Secret, or may get some while paused."""
    replica_sets = (await visit.ctx.client.list(_REPLICA_SET, namespace=visit.namespace)).items
    readers = [each for each in replica_sets if _reads(_typed(each, _REPLICA_SET), secret)]
    if not readers:
        return []
    deployments = (await visit.ctx.client.list(_DEPLOYMENT, namespace=visit.namespace)).items
    paused = {each["metadata"]["uid"] for each in deployments if each["spec"].get("paused")}
    return [
        shown(_typed(each, _REPLICA_SET))
        for each in readers
        if _has_replicas(each) or controller_uid(each) in paused
    ]


async def _revisions_that_read(visit: StepRun, secret: str) -> list[str]:
    """Return the revisions from which StatefulSets may still create pods that take the content of a Secret."""
    sets = (await visit.ctx.client.list(_STATEFUL_SET, namespace=visit.namespace)).items
    if not sets:
        return []
    current = {(each.get("status") or {}).get("currentRevision") for each in sets}
    revisions = (await visit.ctx.client.list(_REVISION, namespace=visit.namespace)).items
    return [
        shown(_typed(each, _REVISION))
        for each in revisions
        if each["metadata"]["name"] in current
        and _reads(_typed(each.get("data") or {}, _STATEFUL_SET), secret)
    ]


def _runs(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _has_replicas(replica_set: Manifest) -> bool:
    """Return whether a ReplicaSet has pods: those of former versions are kept without."""
    return bool((replica_set.get("spec") or {}).get("replicas", 1))


_LIVE: Mapping[str, Callable[[Manifest], bool]] = {
    "v1/Pod": _runs,
    JOB: is_unfinished,
}
"""Kinds that are not watched, or only with the operator's label, and whether one of them is or creates a pod."""


def _reads(manifest: Manifest, secret: str) -> bool:
    spec = pod_spec(manifest)
    return spec is not None and reads_secret(spec, secret)


def _typed(live: Manifest, kind: str) -> Manifest:
    """Return the object with its type, which the elements of a list may lack."""
    version, _, name = kind.rpartition("/")
    return {**live, "apiVersion": version, "kind": name}

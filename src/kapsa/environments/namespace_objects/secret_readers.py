"""Readers of a Secret in an environment's namespace: what would see its content as soon as it is created.

A volume or a variable may be optional, and then waits for a Secret that does not exist yet.
"""

from __future__ import annotations

from kapsa.adapters.manifests.pod_templates import pod_spec, reads_secret
from kapsa.environments.namespace_objects.children import RENDERED_KINDS, shown
from kapsa.environments.step_run import Manifest, StepRun

__all__ = ["pods_that_read", "workloads_that_read"]

_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"})
_POD = "v1/Pod"
_ENDED = ("Succeeded", "Failed")


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
    """Return the pods that take the content of a Secret, such as those that an update has not replaced yet."""
    pods = (await visit.ctx.client.list(_POD, namespace=visit.namespace)).items
    return [
        shown(manifest)
        for live in pods
        if (live.get("status") or {}).get("phase") not in _ENDED
        and _reads(manifest := _typed(live, _POD), secret)
    ]


def _reads(manifest: Manifest, secret: str) -> bool:
    spec = pod_spec(manifest)
    return spec is not None and reads_secret(spec, secret)


def _typed(live: Manifest, kind: str) -> Manifest:
    """Return the object with its type, which the elements of a list may lack."""
    version, _, name = kind.rpartition("/")
    return {**live, "apiVersion": version, "kind": name}

"""Health of objects, computed as kstatus does: current, in progress or failed, and why.

The status of an object decides, and whether it refers to the current spec. See
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["ObjectHealth", "State", "object_health"]

State: TypeAlias = Literal["Current", "InProgress", "Failed", "Terminating"]
Object: TypeAlias = Mapping[str, Any]


class ObjectHealth(msgspec.Struct, frozen=True):
    """The health of an object."""

    state: State
    message: str = ""
    reason: str = ""
    """The reason of a failure, in one word."""


def object_health(manifest: Object) -> ObjectHealth:
    """Return the health of an object, from its status."""
    metadata = manifest.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return ObjectHealth("Terminating", "being deleted")
    status = manifest.get("status") or {}
    observed = status.get("observedGeneration")
    if observed is not None and observed < metadata.get("generation", 0):
        return ObjectHealth("InProgress", "its controller has not observed the latest change")
    check = _CHECKS.get(manifest.get("kind", ""), _by_conditions)
    return check(manifest, status)


def _condition(status: Object, kind: str) -> Object:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            matching: Object = condition
            return matching
    return {}


def _is(status: Object, kind: str, value: str = "True") -> bool:
    return bool(_condition(status, kind).get("status") == value)


def _by_conditions(manifest: Object, status: Object) -> ObjectHealth:
    """Return the health of any other kind, by the conventional conditions Stalled, Reconciling and Ready."""
    stalled, reconciling, ready = (_condition(status, kind) for kind in ("Stalled", "Reconciling", "Ready"))
    if stalled.get("status") == "True":
        return ObjectHealth("Failed", str(stalled.get("message", "")), str(stalled.get("reason", "Stalled")))
    if reconciling.get("status") == "True":
        return ObjectHealth("InProgress", str(reconciling.get("message", "")))
    if ready.get("status") in ("False", "Unknown"):
        return ObjectHealth("InProgress", str(ready.get("message", "")))
    return ObjectHealth("Current")


def _deployment(manifest: Object, status: Object) -> ObjectHealth:
    progressing, failure = _condition(status, "Progressing"), _condition(status, "ReplicaFailure")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return ObjectHealth("Failed", str(progressing.get("message", "")), "ProgressDeadlineExceeded")
    if failure.get("status") == "True":
        return ObjectHealth("Failed", str(failure.get("message", "")), "ReplicaFailure")
    desired = (manifest.get("spec") or {}).get("replicas", 1)
    counted = _replicas(status, desired)
    if counted is not None:
        return counted
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not observed it yet")
    if desired and not _is(status, "Available"):
        return ObjectHealth("InProgress", "not available yet")
    return ObjectHealth("Current")


def _stateful_set(manifest: Object, status: Object) -> ObjectHealth:
    spec = manifest.get("spec") or {}
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return ObjectHealth("Current")
    desired = spec.get("replicas", 1)
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not observed it yet")
    if status.get("replicas", 0) < desired or status.get("readyReplicas", 0) < desired:
        return ObjectHealth("InProgress", f"{status.get('readyReplicas', 0)} of {desired} replicas are ready")
    if status.get("replicas", 0) > desired:
        return ObjectHealth("InProgress", f"{status['replicas'] - desired} surplus replicas are terminating")
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    if partition:
        if status.get("updatedReplicas", 0) < desired - partition:
            return ObjectHealth("InProgress", f"{status.get('updatedReplicas', 0)} replicas are updated")
        return ObjectHealth("Current")
    if status.get("currentReplicas", 0) < desired or status.get("currentRevision") != status.get(
        "updateRevision"
    ):
        return ObjectHealth("InProgress", "replicas of an older revision are still running")
    return ObjectHealth("Current")


def _daemon_set(manifest: Object, status: Object) -> ObjectHealth:
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not observed it yet")
    desired = status.get("desiredNumberScheduled", 0)
    for field, words in (
        ("currentNumberScheduled", "are scheduled"),
        ("updatedNumberScheduled", "are updated"),
        ("numberAvailable", "are available"),
        ("numberReady", "are ready"),
    ):
        if status.get(field, 0) < desired:
            return ObjectHealth("InProgress", f"{status.get(field, 0)} of {desired} pods {words}")
    return ObjectHealth("Current")


def _replicas(status: Object, desired: int) -> ObjectHealth | None:
    """Return what is missing until exactly the desired replicas are ready, or None."""
    for field, words in (
        ("replicas", "exist"),
        ("updatedReplicas", "are updated"),
        ("availableReplicas", "are available"),
        ("readyReplicas", "are ready"),
    ):
        if status.get(field, 0) < desired:
            return ObjectHealth("InProgress", f"{status.get(field, 0)} of {desired} replicas {words}")
    if status.get("replicas", 0) > desired:
        return ObjectHealth("InProgress", f"{status['replicas'] - desired} surplus replicas are terminating")
    return None


def _job(manifest: Object, status: Object) -> ObjectHealth:
    if _is(status, "Failed"):
        failed = _condition(status, "Failed")
        return ObjectHealth(
            "Failed", str(failed.get("message", "")), str(failed.get("reason") or "JobFailed")
        )
    if _is(status, "Complete") or _is(status, "Suspended"):
        return ObjectHealth("Current")
    # kstatus considers a Job current as soon as it has started. Here its result matters.
    return ObjectHealth(
        "InProgress", f"{status.get('succeeded', 0)} of {_completions(manifest)} pods have succeeded"
    )


def _completions(manifest: Object) -> int:
    return int((manifest.get("spec") or {}).get("completions") or 1)


def _claim(manifest: Object, status: Object) -> ObjectHealth:
    phase = status.get("phase", "Pending")
    if phase == "Lost":
        return ObjectHealth("Failed", "its volume is lost", "VolumeLost")
    # A storage class may bind only with the first pod, whose own health shows whether that happens.
    return ObjectHealth("Current", "" if phase == "Bound" else "not bound until the first pod uses it")


def _service(manifest: Object, status: Object) -> ObjectHealth:
    spec = manifest.get("spec") or {}
    if spec.get("type") == "LoadBalancer" and not (status.get("loadBalancer") or {}).get("ingress"):
        return ObjectHealth("InProgress", "no address yet")
    return ObjectHealth("Current")


def _pod(manifest: Object, status: Object) -> ObjectHealth:
    phase = status.get("phase", "")
    if phase == "Succeeded" or (phase == "Running" and _is(status, "Ready")):
        return ObjectHealth("Current")
    if phase == "Failed":
        return ObjectHealth(
            "Failed", str(status.get("message", "the pod failed")), str(status.get("reason") or "PodFailed")
        )
    return ObjectHealth("InProgress", phase.lower() or "not scheduled yet")


def _budget(manifest: Object, status: Object) -> ObjectHealth:
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not observed it yet")
    return ObjectHealth("Current")


def _always(manifest: Object, status: Object) -> ObjectHealth:
    return ObjectHealth("Current")


_CHECKS: Mapping[str, Callable[[Object, Object], ObjectHealth]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "Service": _service,
    "Pod": _pod,
    "PodDisruptionBudget": _budget,
    "CronJob": _always,
    # An autoscaler without metrics does not keep an application from being ready.
    "HorizontalPodAutoscaler": _always,
    "Ingress": _always,
    "ConfigMap": _always,
    "Secret": _always,
    "ServiceAccount": _always,
}

"""Health of objects, as kstatus computes it: current, still in progress, or failed, and why.

Everything is judged by what the object says of itself: its status, and whether that status is about the present spec.
See https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["ObjectHealth", "State", "object_health"]

State: TypeAlias = Literal["Current", "InProgress", "Failed", "Terminating"]
Object: TypeAlias = Mapping[str, Any]


class ObjectHealth(msgspec.Struct, frozen=True):
    """How an object is."""

    state: State
    message: str = ""
    reason: str = ""
    """For a failure: why, as one word."""


def object_health(found: Object) -> ObjectHealth:
    """How this object is."""
    metadata = found.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return ObjectHealth("Terminating", "it is being deleted")
    status = found.get("status") or {}
    observed = status.get("observedGeneration")
    if observed is not None and observed < metadata.get("generation", 0):
        return ObjectHealth("InProgress", "its controller has not seen the latest change yet")
    judge = _JUDGES.get(found.get("kind", ""), _by_conditions)
    return judge(found, status)


def _condition(status: Object, kind: str) -> Object:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Object = condition
            return found
    return {}


def _is(status: Object, kind: str, value: str = "True") -> bool:
    return bool(_condition(status, kind).get("status") == value)


def _by_conditions(found: Object, status: Object) -> ObjectHealth:
    """The convention for kinds that we know nothing of: Stalled, Reconciling, Ready."""
    stalled, reconciling, ready = (_condition(status, kind) for kind in ("Stalled", "Reconciling", "Ready"))
    if stalled.get("status") == "True":
        return ObjectHealth("Failed", str(stalled.get("message", "")), str(stalled.get("reason", "Stalled")))
    if reconciling.get("status") == "True":
        return ObjectHealth("InProgress", str(reconciling.get("message", "")))
    if ready.get("status") in ("False", "Unknown"):
        return ObjectHealth("InProgress", str(ready.get("message", "")))
    return ObjectHealth("Current")


def _deployment(found: Object, status: Object) -> ObjectHealth:
    progressing, failure = _condition(status, "Progressing"), _condition(status, "ReplicaFailure")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return ObjectHealth("Failed", str(progressing.get("message", "")), "ProgressDeadlineExceeded")
    if failure.get("status") == "True":
        return ObjectHealth("Failed", str(failure.get("message", "")), "ReplicaFailure")
    wanted = (found.get("spec") or {}).get("replicas", 1)
    counted = _replicas(status, wanted)
    if counted is not None:
        return counted
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not seen it yet")
    if wanted and not _is(status, "Available"):
        return ObjectHealth("InProgress", "it is not available yet")
    return ObjectHealth("Current")


def _stateful_set(found: Object, status: Object) -> ObjectHealth:
    spec = found.get("spec") or {}
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return ObjectHealth("Current")
    wanted = spec.get("replicas", 1)
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not seen it yet")
    if status.get("replicas", 0) < wanted or status.get("readyReplicas", 0) < wanted:
        return ObjectHealth("InProgress", f"{status.get('readyReplicas', 0)} of {wanted} replicas are ready")
    if status.get("replicas", 0) > wanted:
        return ObjectHealth("InProgress", f"{status['replicas'] - wanted} surplus replicas are ending")
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    if partition:
        if status.get("updatedReplicas", 0) < wanted - partition:
            return ObjectHealth("InProgress", f"{status.get('updatedReplicas', 0)} replicas are updated")
        return ObjectHealth("Current")
    if status.get("currentReplicas", 0) < wanted or status.get("currentRevision") != status.get(
        "updateRevision"
    ):
        return ObjectHealth("InProgress", "replicas of an older revision are still there")
    return ObjectHealth("Current")


def _daemon_set(found: Object, status: Object) -> ObjectHealth:
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not seen it yet")
    wanted = status.get("desiredNumberScheduled", 0)
    for field, words in (
        ("currentNumberScheduled", "are scheduled"),
        ("updatedNumberScheduled", "are updated"),
        ("numberAvailable", "are available"),
        ("numberReady", "are ready"),
    ):
        if status.get(field, 0) < wanted:
            return ObjectHealth("InProgress", f"{status.get(field, 0)} of {wanted} pods {words}")
    return ObjectHealth("Current")


def _replicas(status: Object, wanted: int) -> ObjectHealth | None:
    """What is missing until all replicas are there and no others; None if nothing is."""
    for field, words in (
        ("replicas", "are there"),
        ("updatedReplicas", "are updated"),
        ("availableReplicas", "are available"),
        ("readyReplicas", "are ready"),
    ):
        if status.get(field, 0) < wanted:
            return ObjectHealth("InProgress", f"{status.get(field, 0)} of {wanted} replicas {words}")
    if status.get("replicas", 0) > wanted:
        return ObjectHealth("InProgress", f"{status['replicas'] - wanted} surplus replicas are ending")
    return None


def _job(found: Object, status: Object) -> ObjectHealth:
    if _is(status, "Failed"):
        failed = _condition(status, "Failed")
        return ObjectHealth(
            "Failed", str(failed.get("message", "")), str(failed.get("reason") or "JobFailed")
        )
    if _is(status, "Complete") or _is(status, "Suspended"):
        return ObjectHealth("Current")
    # kstatus calls a Job current as soon as it has started; whoever renders one means its result.
    return ObjectHealth(
        "InProgress", f"{status.get('succeeded', 0)} of {_completions(found)} pods have succeeded"
    )


def _completions(found: Object) -> int:
    return int((found.get("spec") or {}).get("completions") or 1)


def _claim(found: Object, status: Object) -> ObjectHealth:
    phase = status.get("phase", "Pending")
    if phase == "Lost":
        return ObjectHealth("Failed", "its volume is lost", "VolumeLost")
    # A class that waits for the first pod binds only then; the pod's own health tells whether that happens.
    return ObjectHealth("Current", "" if phase == "Bound" else "it is bound with the first pod that uses it")


def _service(found: Object, status: Object) -> ObjectHealth:
    spec = found.get("spec") or {}
    if spec.get("type") == "LoadBalancer" and not (status.get("loadBalancer") or {}).get("ingress"):
        return ObjectHealth("InProgress", "it has no address yet")
    return ObjectHealth("Current")


def _pod(found: Object, status: Object) -> ObjectHealth:
    phase = status.get("phase", "")
    if phase == "Succeeded" or (phase == "Running" and _is(status, "Ready")):
        return ObjectHealth("Current")
    if phase == "Failed":
        return ObjectHealth(
            "Failed", str(status.get("message", "it failed")), str(status.get("reason") or "PodFailed")
        )
    return ObjectHealth("InProgress", f"it is {phase.lower() or 'not scheduled yet'}")


def _budget(found: Object, status: Object) -> ObjectHealth:
    if "observedGeneration" not in status:
        return ObjectHealth("InProgress", "its controller has not seen it yet")
    return ObjectHealth("Current")


def _always(found: Object, status: Object) -> ObjectHealth:
    return ObjectHealth("Current")


_JUDGES: Mapping[str, Callable[[Object, Object], ObjectHealth]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "Service": _service,
    "Pod": _pod,
    "PodDisruptionBudget": _budget,
    "CronJob": _always,
    # An autoscaler that has no metrics yet is no reason to keep an application from being called ready.
    "HorizontalPodAutoscaler": _always,
    "Ingress": _always,
    "ConfigMap": _always,
    "Secret": _always,
    "ServiceAccount": _always,
}

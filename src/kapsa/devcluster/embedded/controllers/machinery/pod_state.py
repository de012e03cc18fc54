"""The state of a pod, for controllers that count pods."""

from __future__ import annotations

from datetime import datetime

from kapsa.devcluster.embedded.controllers.machinery.conditions import find, is_true
from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.timestamps import seconds_since

FINISHED = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """Return the pod's phase, or an empty string."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_finished(pod: Object) -> bool:
    """Return whether all containers ended for good."""
    return phase(pod) in FINISHED


def is_active(pod: Object) -> bool:
    """Return whether the pod counts towards replicas: it is neither finished nor being deleted."""
    return not is_finished(pod) and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    """Return whether the pod is being deleted and has not finished."""
    return not is_finished(pod) and is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Return whether the pod's Ready condition is true."""
    return is_true((pod.get("status") or {}).get("conditions"), "Ready")


def is_scheduled(pod: Object) -> bool:
    """Return whether the pod is bound to a node."""
    return bool(pod["spec"].get("nodeName"))


def available_in(pod: Object, min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until the pod counts as available: 0 if it does now, None if it is not ready."""
    ready = find((pod.get("status") or {}).get("conditions"), "Ready")
    if ready is None or ready["status"] != "True":
        return None
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    if not since:
        return None
    return max(0.0, min_ready_seconds - seconds_since(since, now))


def is_available(pod: Object, min_ready_seconds: int, now: datetime) -> bool:
    """Return whether the pod has been ready for `min_ready_seconds`."""
    return available_in(pod, min_ready_seconds, now) == 0.0


def restarts(pod: Object) -> int:
    """Return the highest restart count of its containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(s.get("restartCount") or 0) for s in statuses), default=0)

"""The plans of ReplicaSets and ReplicationControllers: the specified number of pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.conditions import find, put, without
from kapsa.devcluster.embedded.controllers.machinery.kinds import POD, Kind, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    LARGEST_BATCH,
    Create,
    Delete,
    Note,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import (
    available_in,
    is_active,
    is_ready,
    is_scheduled,
    is_terminating,
    phase,
    restarts,
)
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.controllers.workloads.rollout import replicas
from kapsa.devcluster.embedded.controllers.workloads.templates import pod_from
from kapsa.devcluster.embedded.kinds.labels import matches_map


def plan_scale(kind: Kind, owner: Object, pods: list[Object], related: list[Object]) -> WritePlan:
    """Plan to create missing pods, or to delete the surplus in kube-controller-manager's order.

    `related` holds the active pods of all ReplicaSets of the same Deployment: nodes with more of them lose
    first.
    """
    plan = WritePlan()
    if is_deleting(owner):
        return plan
    active = [pod for pod in pods if is_active(pod)]
    missing = replicas(owner) - len(active)
    for _ in range(min(missing, LARGEST_BATCH)):
        plan.do(
            Create(
                POD,
                pod_from(owner["spec"]["template"], kind, owner),
                done=Note(owner, "SuccessfulCreate", "Created pod: {name}"),
                failed=Note(owner, "FailedCreate", "Error creating: {error}", "Warning"),
            )
        )
    if missing < 0:
        for pod in _victims(active, related)[: min(-missing, LARGEST_BATCH)]:
            plan.do(
                Delete(
                    POD,
                    pod,
                    done=Note(owner, "SuccessfulDelete", "Deleted pod: {name}"),
                    failed=Note(owner, "FailedDelete", "Error deleting: {error}", "Warning"),
                )
            )
    return plan


def _victims(active: list[Object], related: list[Object]) -> list[Object]:
    counts: dict[str, int] = {}
    for pod in related:
        if is_active(pod) and is_scheduled(pod):
            node = pod["spec"]["nodeName"]
            counts[node] = counts.get(node, 0) + 1

    def rank(pod: Object) -> tuple[Any, ...]:
        annotations = pod["metadata"].get("annotations") or {}
        try:
            cost = int(annotations.get("controller.kubernetes.io/pod-deletion-cost", 0))
        except ValueError:
            cost = 0
        created = pod["metadata"].get("creationTimestamp") or ""
        return (
            is_scheduled(pod),
            {"Pending": 0, "Unknown": 1}.get(phase(pod) or "Pending", 2),
            is_ready(pod),
            cost,
            -counts.get(pod["spec"].get("nodeName") or "", 0),
            -restarts(pod),
            _newest_first(_ready_since(pod)),
            _newest_first(created),
        )

    return sorted(active, key=rank)


def _ready_since(pod: Object) -> str:
    ready = find((pod.get("status") or {}).get("conditions"), "Ready")
    return ready.get("lastTransitionTime") or "" if ready else ""


def _newest_first(text: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in text)


def plan_status(
    kind: Kind, owner: Object, pods: list[Object], now: datetime, failure: str | None = None
) -> WritePlan:
    """Plan the status: counts of pods, and the error if creating or deleting pods failed."""
    plan = WritePlan()
    active = [pod for pod in pods if is_active(pod)]
    seconds = owner["spec"].get("minReadySeconds") or 0
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    waits = [available_in(pod, seconds, now) for pod in active]
    counters = {
        "fullyLabeledReplicas": sum(
            matches_map(labels, pod["metadata"].get("labels") or {}) for pod in active
        ),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(wait == 0.0 for wait in waits),
    }
    before = owner.get("status") or {}
    status: dict[str, Any] = {"replicas": len(active)}
    status.update({key: value for key, value in counters.items() if value})
    if kind.group:
        status["terminatingReplicas"] = sum(is_terminating(pod) for pod in pods)
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    conditions = _failure_condition(before, len(active) - replicas(owner), now, failure)
    if conditions:
        status["conditions"] = conditions
    if status != before:
        plan.do(UpdateStatus(kind, {**owner, "status": status}))
    soonest = min((wait for wait in waits if wait), default=None)
    if soonest is not None:
        plan.requeue_after(soonest)
    return plan


def last_failure(owner: Object) -> str | None:
    """Return the error of the last attempt to create or delete pods, if its status reports one."""
    reported = find((owner.get("status") or {}).get("conditions"), "ReplicaFailure")
    return str(reported["message"]) if reported else None


def _failure_condition(
    before: dict[str, Any], surplus: int, now: datetime, failure: str | None
) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = list(before.get("conditions") or [])
    if failure is None:
        return without(conditions, "ReplicaFailure")
    return put(
        conditions,
        {
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": render(now),
            "reason": "FailedCreate" if surplus < 0 else "FailedDelete",
            "message": failure,
        },
    )

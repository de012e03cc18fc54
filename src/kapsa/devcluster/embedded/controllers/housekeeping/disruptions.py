"""The plan of a PodDisruptionBudget: the number of pods that may be evicted."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.conditions import find
from kapsa.devcluster.embedded.controllers.machinery.kinds import DISRUPTION_BUDGET, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import UpdateStatus, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished, is_ready
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.kinds.labels import matches

_EVICTION_SECONDS = 120
"""Seconds after which an eviction whose pod still exists counts as failed."""


def plan(budget: Object, pods: list[Object], scale_of: Callable[[Object], int], now: datetime) -> WritePlan:
    """Plan the next status of a PodDisruptionBudget.

    `pods` holds the pods of its namespace; `scale_of` returns the desired replicas of a pod's controller.
    """
    plan = WritePlan()
    selector = budget["spec"].get("selector")
    members = [p for p in pods if matches(selector, p["metadata"].get("labels") or {}) and not is_finished(p)]
    expected, desired = _targets(budget["spec"], members, scale_of)
    before = budget.get("status") or {}
    evicted = _still_evicting(before.get("disruptedPods") or {}, members, now)
    healthy = sum(
        is_ready(p) and not is_deleting(p) and p["metadata"]["name"] not in evicted for p in members
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status: dict[str, Any] = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [_condition(budget, before, allowed, now)],
    }
    if evicted:
        status["disruptedPods"] = evicted
        plan.requeue_after(_EVICTION_SECONDS)
    if status != before:
        plan.do(UpdateStatus(DISRUPTION_BUDGET, {**budget, "status": status}))
    return plan


def _targets(spec: dict[str, Any], pods: list[Object], scale_of: Callable[[Object], int]) -> tuple[int, int]:
    """Return the expected number of pods, and the number that must be healthy."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is not None:
        expected = _expected(pods, scale_of)
        return expected, max(0, expected - _scaled(most, expected))
    if isinstance(least, str):
        expected = _expected(pods, scale_of)
        return expected, _scaled(least, expected)
    return len(pods), int(least or 0)


def _expected(pods: list[Object], scale_of: Callable[[Object], int]) -> int:
    scales: dict[str, int] = {}
    for pod in pods:
        owners = [r for r in pod["metadata"].get("ownerReferences") or () if r.get("controller")]
        if owners:
            scales[owners[0]["uid"]] = scale_of(pod)
    return sum(scales.values())


def _scaled(value: Any, total: int) -> int:
    if isinstance(value, str):
        return math.ceil(int(value.rstrip("%")) * total / 100)
    return int(value)


def _still_evicting(evicted: dict[str, str], pods: list[Object], now: datetime) -> dict[str, str]:
    waiting = {p["metadata"]["name"] for p in pods if not is_deleting(p)}
    return {n: t for n, t in evicted.items() if n in waiting and seconds_since(t, now) < _EVICTION_SECONDS}


def _condition(budget: Object, before: dict[str, Any], allowed: int, now: datetime) -> dict[str, Any]:
    status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    current = find(before.get("conditions"), "DisruptionAllowed")
    since = current["lastTransitionTime"] if current and current["status"] == status else render(now)
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": since,
        "reason": reason,
        "message": "",
    }

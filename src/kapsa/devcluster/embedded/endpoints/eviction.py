"""Eviction: checks and updates a pod's disruption budget."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.verbs.commit import commit
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.status_errors import ErrorCause

__all__ = ["take_from_budget"]

Object = dict[str, Any]


def take_from_budget(backend: Backend, pod: Object) -> None:
    """Count an eviction against the pod's budget.

    Raises StatusError 429 when the budget allows no disruption, 500 when several budgets select the pod.
    """
    meta = pod["metadata"]
    info = backend.registry.get("policy", "v1", "poddisruptionbudgets")
    collection = backend.collection(info)
    labels = meta.get("labels") or {}
    budgets = [
        budget
        for budget in map(decode, collection.current(f"{meta['namespace']}/"))
        if matches((budget.get("spec") or {}).get("selector"), labels)
    ]
    if not budgets or pod.get("status", {}).get("phase") in ("Pending", "Succeeded", "Failed"):
        return
    if len(budgets) > 1:
        raise errors.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = budgets[0]
    status = budget.setdefault("status", {})
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        name, healthy = budget["metadata"]["name"], status.get("currentHealthy", 0)
        text = f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has {healthy} currently"
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        raise errors.too_many_requests(message, 0, causes=[ErrorCause("", "DisruptionBudget", text)])
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), meta["name"]: backend.now()}
    commit(backend, info, budget)

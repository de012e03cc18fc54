"""Eviction: deletes a pod if its disruption budget allows it."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest
from kapsa.devcluster.embedded.requests.parameters import Preconditions
from kapsa.devcluster.embedded.verbs import deletion
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.commit import commit
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.status_errors import ErrorCause

__all__ = ["evict"]

Object = dict[str, Any]

_LARGEST_DISRUPTED = 2000
_MESSAGE = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_ALLOWED_CONDITION = "DisruptionAllowed"


async def evict(backend: Backend, request: DeleteRequest, pod: Object) -> Object:
    """Delete a pod that its budget allows to evict, and return the Status of the reply.

    Raises StatusError 429 when the budget allows no disruption. A dry run checks everything and changes nothing.
    """
    if not _needs_no_budget(pod):
        budgets = _budgets_of(backend, pod)
        if len(budgets) > 1:
            return {**_status("Failure"), "message": _SEVERAL, "code": 500}
        if budgets and not _is_unhealthy_and_spare(pod, budgets[0]):
            await _take(backend, budgets[0], pod["metadata"]["name"], dry_run=request.dry_run)
    await _delete(backend, request)
    return {**_status("Success"), "code": 201}


def _status(status: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status}


# Budgets


def _needs_no_budget(pod: Object) -> bool:
    """Return whether a pod is not running yet, or no longer, so that its eviction disrupts nothing."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _budgets_of(backend: Backend, pod: Object) -> list[Object]:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    collection = backend.collection(_budget_info(backend))
    return [
        budget
        for budget in map(decode, collection.current(f"{meta['namespace']}/"))
        if matches((budget.get("spec") or {}).get("selector"), labels)
    ]


def _budget_info(backend: Backend) -> ResourceInfo:
    return backend.registry.get("policy", "v1", "poddisruptionbudgets")


def _is_unhealthy_and_spare(pod: Object, budget: Object) -> bool:
    """Return whether a pod is not ready and its eviction leaves the budget as healthy as before."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(0 < desired <= status.get("currentHealthy", 0))


async def _take(backend: Backend, budget: Object, pod: str, *, dry_run: bool) -> None:
    """Count an eviction against a budget."""
    info, name = _budget_info(backend), budget["metadata"]["name"]
    status = budget.setdefault("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise errors.too_many_requests(_MESSAGE, 10, causes=[ErrorCause("", "DisruptionBudget", text)])
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise _forbidden(info, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _LARGEST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _forbidden(info, name, why)
    if allowed == 0:
        cause = ErrorCause("", "DisruptionBudget", _refusal(name, status))
        raise errors.too_many_requests(_MESSAGE, 0, causes=[cause])
    if dry_run:
        return
    now = backend.now()
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    if allowed == 1:
        status["conditions"] = _exhausted(status, now)
    await InProcessClient(backend, manager="kube-apiserver").update_status(info, budget)


def _forbidden(info: ResourceInfo, name: str, why: str) -> errors.StatusError:
    return errors.forbidden(msgspec.structs.replace(info, resource="poddisruptionbudget"), name, why)


def _refusal(name: str, status: Object) -> str:
    """Return why a budget without disruptions left refuses, in the real server's words."""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    condition = _condition(status) or {}
    reason, message = condition.get("reason", ""), condition.get("message", "")
    explains = condition.get("status") == "False" and bool(message)
    if explains and reason == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    text = f"The disruption budget {name} does not allow evicting pods currently"
    return f"{text} ({reason}): {message}" if explains else text


def _condition(status: Object) -> Object | None:
    conditions = status.get("conditions") or ()
    return next((each for each in conditions if each["type"] == _ALLOWED_CONDITION), None)


def _exhausted(status: Object, now: str) -> list[Object]:
    """Return the conditions of a budget whose last disruption was taken."""
    before = _condition(status)
    since = before["lastTransitionTime"] if before and before["status"] == "False" else now
    condition = {
        "type": _ALLOWED_CONDITION,
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": since,
        "reason": "InsufficientPods",
        "message": "",
    }
    others = status.get("conditions") or []
    if before is None:
        return [*others, condition]
    return [condition if each is before else each for each in others]


# The pod


async def _delete(backend: Backend, request: DeleteRequest) -> None:
    """Mark the pod as disrupted and delete it. Raises StatusError 409 when a precondition does not hold."""
    info = request.info
    if not request.dry_run:
        live = backend.collection(info).get(info.object_key(request.namespace, request.name))
        if live is None:
            raise errors.not_found(info, request.name)
        pod = decode(live)
        deletion.check_preconditions(info, pod, request.parameters.preconditions)
        _mark(pod, backend.now())
        stored = commit(backend, info, pod)
        request = _at_revision(request, str(stored.revision))
    await deletion.delete(backend, request)


def _mark(pod: Object, now: str) -> None:
    status = pod.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"]
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = [*others, target]


def _at_revision(request: DeleteRequest, revision: str) -> DeleteRequest:
    """Return the request with the revision after the mark, if it had a revision as a precondition."""
    required = request.parameters.preconditions
    if required is None or required.resource_version is None:
        return request
    preconditions = Preconditions(uid=required.uid, resource_version=revision)
    parameters = msgspec.structs.replace(request.parameters, preconditions=preconditions)
    return msgspec.structs.replace(request, parameters=parameters)

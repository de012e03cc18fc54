"""Binding: the one way to assign a pod to a node."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.embedded.verbs import writes
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas.go_format import quote

__all__ = ["bind"]

Object = dict[str, Any]


async def bind(backend: Backend, write: WriteRequest, node: str, metadata: Object | None = None) -> Stored:
    """Assign a pod to a node, with the labels and annotations of the binding; `write` is of the subresource.

    Raises StatusError 404 when the pod does not exist, 409 when it has a node, is not ready for one, or is not
    the one that the binding's metadata names.
    """
    given = metadata or {}

    def assign(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        _check_preconditions(write, live["metadata"], given)
        if problem := _problem(live):
            raise errors.conflict(write.info, write.name, f"pod {write.name} {problem}", path="pods/binding")
        for field in ("labels", "annotations"):
            if given.get(field):
                live["metadata"][field] = (live["metadata"].get(field) or {}) | given[field]
        live["spec"]["nodeName"] = node
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": backend.now(),
        }
        status = live.setdefault("status", {})
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        status["conditions"] = [*others, scheduled]
        return live

    return (await writes.update(backend, write, assign)).stored


def _problem(pod: Object) -> str:
    """Return why a pod cannot get a node, or an empty string."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"
    if current := pod["spec"].get("nodeName"):
        return f"is already assigned to node {quote(current)}"
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _check_preconditions(write: WriteRequest, live: Object, given: Object) -> None:
    for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if given.get(field) and given[field] != live[field]:
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{write.key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: {title} in precondition: {given[field]}, "
                f"{title} in object meta: {live[field]}"
            )
            raise errors.conflict(write.info, write.name, why)

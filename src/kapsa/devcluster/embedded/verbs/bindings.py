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


async def bind(backend: Backend, write: WriteRequest, node: str) -> Stored:
    """Assign a pod to a node; `write` is of the binding subresource.

    Raises StatusError 404 when the pod does not exist, 409 when it has a node.
    """

    def assign(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        current = live["spec"].get("nodeName")
        if current:
            why = f"pod {write.name} is already assigned to node {quote(current)}"
            raise errors.conflict(write.info, write.name, why, path="pods/binding")
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

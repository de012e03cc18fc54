"""TaintNodesByCondition: a new node is not ready until its controller says so."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.requests.mutations import WriteRequest

__all__ = ["NodeTaints"]

_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeTaints(Plugin):
    """The TaintNodesByCondition plugin of the real server."""

    resources = frozenset({("", "nodes")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is not None or write.subresource:
            return obj
        spec = obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any((t.get("key"), t.get("effect")) == (_TAINT["key"], _TAINT["effect"]) for t in taints):
            spec["taints"] = [*taints, dict(_TAINT)]
        return obj

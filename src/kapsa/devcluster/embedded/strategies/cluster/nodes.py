"""Nodes."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.quantities import canonical


class NodeStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        status = obj.get("status") or {}
        for field in ("capacity", "allocatable"):
            for name, amount in (status.get(field) or {}).items():
                status[field][name] = canonical(amount)
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def reset_for_create(self, obj: Object) -> None:
        # A kubelet registers its node with its status in one request.
        self.default(obj)

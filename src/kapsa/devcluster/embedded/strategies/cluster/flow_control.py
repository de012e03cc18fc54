"""Priority and fairness: flow schemas and priority levels. The embedded engine stores them and limits nothing."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.cluster.flow_control_validation import (
    validate_flow_schema,
    validate_priority_level,
)
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError

_QUEUING = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}


class FlowSchemaStrategy(BuiltInStrategy):
    unenforced = "priority and fairness limit no request"

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["matchingPrecedence"] = spec.get("matchingPrecedence") or 1000

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_flow_schema(obj)


class PriorityLevelStrategy(BuiltInStrategy):
    unenforced = "priority and fairness limit no request"

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for kind, shares in (("exempt", 0), ("limited", 30)):
            level = spec.get(kind)
            if level is None:
                continue
            for field, value in (("nominalConcurrencyShares", shares), ("lendablePercent", 0)):
                if level.get(field) is None:
                    level[field] = value
        queuing = ((spec.get("limited") or {}).get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            for field, value in _QUEUING.items():
                queuing[field] = queuing.get(field) or value

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_priority_level(obj)

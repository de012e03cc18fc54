"""HorizontalPodAutoscalers: defaults and validation. The embedded engine does not scale by metrics."""

from __future__ import annotations

import copy
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.workloads.autoscaling_validation import (
    validate_autoscaler,
    validate_target_reference,
)
from kapsa.schemas.field_errors import FieldError

_CPU_TARGET = 80
_OTHER_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
"""The annotation of the first version with the metrics that it has no field for."""
_UP: dict[str, Any] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN: dict[str, Any] = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


class HorizontalPodAutoscalerStrategy(BuiltInStrategy):
    unenforced = "there are no metrics, and nothing is scaled"

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if self.info.version == "v1":
            annotated = _OTHER_METRICS in (obj["metadata"].get("annotations") or {})
            if spec.get("targetCPUUtilizationPercentage") is None and not annotated:
                spec["targetCPUUtilizationPercentage"] = _CPU_TARGET
            return
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": _CPU_TARGET}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        behavior = spec.get("behavior")
        if behavior is not None:
            for way, rules in (("scaleUp", _UP), ("scaleDown", _DOWN)):
                given = {k: v for k, v in (behavior.get(way) or {}).items() if v is not None}
                behavior[way] = {**copy.deepcopy(rules), **given}

    def initial_status(self, obj: Object) -> dict[str, Any]:
        # Both counters have no omitempty in Go.
        if self.info.version == "v1":
            return {"currentReplicas": 0, "desiredReplicas": 0}
        return {"desiredReplicas": 0, "currentMetrics": None}

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_autoscaler(obj["spec"], self._metrics(obj["spec"]))

    def _metrics(self, spec: Object) -> list[Object]:
        """Return the metrics. The first version has one, as a number."""
        percentage = spec.get("targetCPUUtilizationPercentage")
        if self.info.version != "v1" or percentage is None:
            return spec.get("metrics") or []
        target = {"type": "Utilization", "averageUtilization": percentage}
        return [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]

    def validate_create(self, obj: Object) -> list[FieldError]:
        return [*validate_target_reference(obj["spec"].get("scaleTargetRef") or {}), *self.validate(obj)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = (each["spec"].get("scaleTargetRef") or {} for each in (old, obj))
        same = all(before.get(field) == after.get(field) for field in ("apiVersion", "kind"))
        return [*([] if same else validate_target_reference(after)), *self.validate(obj)]

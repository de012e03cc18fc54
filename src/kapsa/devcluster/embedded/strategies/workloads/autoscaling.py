"""HorizontalPodAutoscalers: defaults and validation. The embedded engine does not scale by metrics."""

from __future__ import annotations

import copy
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, invalid, required

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
        spec = obj["spec"]
        errors: list[FieldError] = []
        low, high = spec["minReplicas"], spec.get("maxReplicas") or 0
        if low < 1:
            errors.append(invalid("spec.minReplicas", low, "must be greater than or equal to 1"))
        if high < 1:
            errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
        if high < low:
            errors.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
        target = spec.get("scaleTargetRef") or {}
        errors += [required(f"spec.scaleTargetRef.{f}") for f in ("kind", "name") if not target.get(f)]
        for way in ("scaleUp", "scaleDown"):
            rules = (spec.get("behavior") or {}).get(way)
            if rules is not None and not rules.get("policies"):
                path = f"spec.behavior.{way}.policies"
                errors.append(required(path, "must specify at least one Policy"))
        return errors

    def validate_create(self, obj: Object) -> list[FieldError]:
        return [*_validate_target(obj["spec"].get("scaleTargetRef") or {}), *self.validate(obj)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = (each["spec"].get("scaleTargetRef") or {} for each in (old, obj))
        same = all(before.get(field) == after.get(field) for field in ("apiVersion", "kind"))
        return [*([] if same else _validate_target(after)), *self.validate(obj)]


def _validate_target(target: Object) -> list[FieldError]:
    """Return the errors of the target's apiVersion. The one scalable kind of the core group needs no group."""
    version = target.get("apiVersion") or ""
    if "/" in version or target.get("kind") == "ReplicationController":
        return []
    return [invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group")]

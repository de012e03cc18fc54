"""HorizontalPodAutoscalers: defaults and validation. The embedded engine does not scale by metrics."""

from __future__ import annotations

import copy
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, invalid, required

_CPU_TARGET = 80
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
        group = (target.get("apiVersion") or "").rpartition("/")[0]
        if self.info.version != "v1" and not group:
            detail = "apiVersion must specify API group"
            errors.append(invalid("spec.scaleTargetRef.apiVersion", target.get("apiVersion") or "", detail))
        for way in ("scaleUp", "scaleDown"):
            rules = (spec.get("behavior") or {}).get(way)
            if rules is not None and not rules.get("policies"):
                path = f"spec.behavior.{way}.policies"
                errors.append(required(path, "must specify at least one Policy"))
        return errors

"""PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import given, one_of
from kapsa.schemas.field_errors import FieldError, invalid

_EVICTIONS = given(one_of("AlwaysAllow", "IfHealthyBudget"))


class PodDisruptionBudgetStrategy(BuiltInStrategy):
    def initial_status(self, obj: Object) -> dict[str, Any]:
        return dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            detail = "minAvailable and maxUnavailable cannot be both set"
            shown = (
                ("MinAvailable", spec["minAvailable"]),
                ("Selector", spec.get("selector")),
                ("MaxUnavailable", spec["maxUnavailable"]),
                ("UnhealthyPodEvictionPolicy", spec.get("unhealthyPodEvictionPolicy")),
            )
            errors.append(rules.printed(invalid("spec", spec, detail), *shown))
        for field in ("minAvailable", "maxUnavailable"):
            if spec.get(field) is not None:
                errors += rules.positive_int_or_percent(spec[field], f"spec.{field}")
                errors += rules.at_most_all(spec[field], f"spec.{field}")
        errors += rules.label_selector(spec.get("selector") or {}, "spec.selector")
        return errors + _EVICTIONS(spec.get("unhealthyPodEvictionPolicy"), "spec.unhealthyPodEvictionPolicy")

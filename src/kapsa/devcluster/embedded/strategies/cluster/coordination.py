"""Leases and PriorityClasses."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import one_of, present
from kapsa.schemas.field_errors import FieldError, forbidden, invalid

_PREEMPTION = present(one_of("PreemptLowerPriority", "Never"))


class LeaseStrategy(BuiltInStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        errors += rules.non_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
        if spec.get("preferredHolder") and not spec.get("strategy"):
            detail = "may only be specified if `strategy` is defined"
            errors.append(forbidden("spec.preferredHolder", detail))
        return errors


class PriorityClassStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        if obj.get("preemptionPolicy") is None:
            obj["preemptionPolicy"] = "PreemptLowerPriority"

    def validate(self, obj: Object) -> list[FieldError]:
        return [*self._reserved(obj), *_PREEMPTION(obj["preemptionPolicy"], "preemptionPolicy")]

    def _reserved(self, obj: Object) -> list[FieldError]:
        """Return the errors of a class that takes a name or a value of the system."""
        name, value = obj["metadata"].get("name") or "", obj.get("value") or 0
        if name.startswith("system-"):
            detail = "priority class names with 'system-' prefix are reserved for system use only"
            return [forbidden("metadata.name", detail)]
        if value > 1_000_000_000:
            detail = "maximum allowed value of a user defined priority is 1000000000"
            return [forbidden("value", detail)]
        return []

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        if obj.get("value") != old.get("value"):
            errors.append(invalid("value", obj.get("value") or 0, "field is immutable"))
        if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            errors.append(invalid("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable"))
        return errors

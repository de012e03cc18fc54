"""Admission policies and their bindings: defaults."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object


class AdmissionPolicyStrategy(BuiltInStrategy):
    """Strategy of validating and mutating admission policies."""

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["failurePolicy"] = spec.get("failurePolicy") or "Fail"
        if spec.get("matchConstraints") is not None:
            _default_match(spec["matchConstraints"])


class AdmissionPolicyBindingStrategy(BuiltInStrategy):
    """Strategy of the bindings of admission policies."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("matchResources") is not None:
            _default_match(spec["matchResources"])


def _default_match(match: Object) -> None:
    match["matchPolicy"] = match.get("matchPolicy") or "Equivalent"
    for selector in ("namespaceSelector", "objectSelector"):
        if match.get(selector) is None:
            match[selector] = {}
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(field) or ():
            rule["scope"] = rule.get("scope") or "*"

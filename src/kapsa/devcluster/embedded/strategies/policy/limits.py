"""LimitRanges and ResourceQuotas."""

from __future__ import annotations

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.policy.limit_range_validation import validate_limits
from kapsa.devcluster.embedded.strategies.policy.quota_names import (
    COUNTED_RESOURCES,
    QUOTA_RESOURCES,
    STANDARD_RESOURCES,
)
from kapsa.devcluster.embedded.strategies.policy.quota_scopes import validate_scopes
from kapsa.schemas.field_errors import FieldError, invalid
from kapsa.schemas.quantities import canonical, parse


class LimitRangeStrategy(BuiltInStrategy):
    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        # Of all kinds, only this one needs no name.
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = obj["metadata"]["uid"]

    def default(self, obj: Object) -> None:
        for item in (obj.get("spec") or {}).get("limits") or ():
            for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
                for name, amount in (item.get(field) or {}).items():
                    item[field][name] = canonical(amount)
            if item.get("type") == "Container":
                default = {**(item.get("max") or {}), **(item.get("default") or {})}
                requested = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
                for field, amounts in (("default", default), ("defaultRequest", requested)):
                    if amounts:
                        item[field] = amounts

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_limits((obj.get("spec") or {}).get("limits") or [], "spec.limits")


class ResourceQuotaStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        hard = (obj.get("spec") or {}).get("hard") or {}
        for name, amount in hard.items():
            hard[name] = canonical(amount)

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for name, amount in ((obj.get("spec") or {}).get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            hugepages = name.startswith(("hugepages-", "requests.hugepages-"))
            problems = names.label_key(name)
            errors += [invalid(path, name, problem) for problem in problems]
            if "/" not in name and not hugepages:
                if name not in STANDARD_RESOURCES and not problems:
                    errors.append(invalid(path, name, "must be a standard resource type or fully qualified"))
                if name not in QUOTA_RESOURCES:
                    errors.append(invalid(path, name, "must be a standard resource for quota"))
            if parse(amount) < 0:
                errors.append(invalid(path, str(amount), "must be greater than or equal to 0"))
            if name in COUNTED_RESOURCES and parse(amount) != int(parse(amount)):
                errors.append(invalid(path, str(amount), "must be an integer"))
        return errors + validate_scopes(obj.get("spec") or {})

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        after, before = obj["spec"].get("scopes"), old["spec"].get("scopes")
        return (
            []
            if set(after or ()) == set(before or ())
            else [invalid("spec.scopes", after, "field is immutable")]
        )

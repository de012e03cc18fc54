"""LimitRanges and ResourceQuotas."""

from __future__ import annotations

from .builtin import BuiltIn, Object
from .quantities import canonical


class LimitRanges(BuiltIn):
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


class ResourceQuotas(BuiltIn):
    def default(self, obj: Object) -> None:
        hard = (obj.get("spec") or {}).get("hard") or {}
        for name, amount in hard.items():
            hard[name] = canonical(amount)

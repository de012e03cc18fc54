"""Endpoints and EndpointSlices."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, required


class EndpointsStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"


class EndpointSliceStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            if port.get("name") is None:
                port["name"] = ""
            port["protocol"] = port.get("protocol") or "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        kinds = ("FQDN", "IPv4", "IPv6")
        kind = obj.get("addressType") or ""
        if not kind:
            return [required("addressType")]
        return [] if kind in kinds else [not_supported("addressType", kind, kinds)]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        if obj.get("addressType") == old.get("addressType"):
            return []
        return [invalid("addressType", obj.get("addressType"), "field is immutable")]

"""Claims for devices: resource.k8s.io."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object


class ResourceClaimStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        _default_requests(obj.get("spec") or {})

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {}


class ResourceClaimTemplateStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        _default_requests((obj.get("spec") or {}).get("spec") or {})


def _default_requests(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for alternative in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if alternative is None:
                continue
            alternative["allocationMode"] = alternative.get("allocationMode") or "ExactCount"
            if alternative["allocationMode"] == "ExactCount":
                alternative["count"] = alternative.get("count") or 1

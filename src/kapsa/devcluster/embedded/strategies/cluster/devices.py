"""Devices, their classes and the claims for them: resource.k8s.io."""

from __future__ import annotations

from typing import Any, ClassVar

from kapsa.devcluster.embedded.strategies.cluster.device_validation import (
    CLAIM_SPEC,
    CLAIM_TEMPLATE,
    CLASS_SPEC,
    validate_slice_spec,
)
from kapsa.devcluster.embedded.strategies.generic.builtin import CheckedStrategy, Object


class ResourceClaimStrategy(CheckedStrategy):
    checks: ClassVar = {"spec": CLAIM_SPEC}
    fixed = ("spec",)

    def default(self, obj: Object) -> None:
        _default_requests(obj.get("spec") or {})

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {}


class DeviceClassStrategy(CheckedStrategy):
    checks: ClassVar = {"spec": CLASS_SPEC}


class ResourceSliceStrategy(CheckedStrategy):
    checks: ClassVar = {"spec": validate_slice_spec}
    fixed = ("spec.pool.name", "spec.driver", "spec.nodeName")


class ResourceClaimTemplateStrategy(CheckedStrategy):
    checks: ClassVar = {"spec": CLAIM_TEMPLATE}
    fixed = ("spec",)

    def default(self, obj: Object) -> None:
        _default_requests((obj.get("spec") or {}).get("spec") or {})


def _default_requests(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for alternative in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if alternative is None:
                continue
            for toleration in alternative.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"
            alternative["allocationMode"] = alternative.get("allocationMode") or "ExactCount"
            if alternative["allocationMode"] == "ExactCount":
                alternative["count"] = alternative.get("count") or 1

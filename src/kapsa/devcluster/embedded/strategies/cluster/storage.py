"""PersistentVolumes, their claims, and the classes and drivers behind them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required
from kapsa.schemas.quantities import canonical, parse

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"
_DRIVER_DEFAULTS: dict[str, Any] = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_TOKENS_IN_ATTRIBUTES = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


class PersistentVolumeClaimStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["volumeMode"] = spec.get("volumeMode") or "Filesystem"
        for amounts in (spec.get("resources") or {}).values():
            for name in amounts or ():
                amounts[name] = canonical(amounts[name])

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"phase": "Pending"}

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        _protect(obj, CLAIM_PROTECTION)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        modes = spec.get("accessModes") or []
        if not modes:
            errors.append(required("spec.accessModes", "at least 1 access mode is required"))
        errors += [not_supported("spec.accessModes", mode, _MODES) for mode in modes if mode not in _MODES]
        amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        if amount is None:
            errors.append(required("spec.resources[storage]"))
        elif parse(amount) <= 0:
            errors.append(invalid("spec.resources[storage]", amount, "must be greater than zero"))
        if spec.get("storageClassName"):
            errors += rules.dns_subdomain(spec["storageClassName"], "spec.storageClassName")
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        loose = {"resources", "volumeAttributesClassName"}
        if not old["spec"].get("volumeName"):
            loose.add("volumeName")
        if "storageClassName" not in old["spec"]:
            loose.add("storageClassName")
        after = {k: v for k, v in obj["spec"].items() if k not in loose}
        before = {k: v for k, v in old["spec"].items() if k not in loose}
        if after != before:
            detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
            return [forbidden("spec", detail)]
        after, before = _storage(obj), _storage(old)
        if after is not None and before is not None and parse(after) < parse(before):
            return [
                forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
            ]
        return []


class PersistentVolumeStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
        spec["volumeMode"] = spec.get("volumeMode") or "Filesystem"
        for name, amount in (spec.get("capacity") or {}).items():
            spec["capacity"][name] = canonical(amount)
        if spec.get("hostPath") is not None and spec["hostPath"].get("type") is None:
            spec["hostPath"]["type"] = ""

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"phase": "Pending"}

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        obj["status"]["lastPhaseTransitionTime"] = obj["metadata"]["creationTimestamp"]

    def reset_for_create(self, obj: Object) -> None:
        super().reset_for_create(obj)
        _protect(obj, VOLUME_PROTECTION)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        if not spec.get("accessModes"):
            errors.append(required("spec.accessModes"))
        if not spec.get("capacity"):
            errors.append(required("spec.capacity"))
        return errors


class StorageClassStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        obj["reclaimPolicy"] = obj.get("reclaimPolicy") or "Delete"
        obj["volumeBindingMode"] = obj.get("volumeBindingMode") or "Immediate"

    def validate(self, obj: Object) -> list[FieldError]:
        return [] if obj.get("provisioner") else [required("provisioner")]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        fixed = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        changed = [field for field in fixed if (obj.get(field) or None) != (old.get(field) or None)]
        return [forbidden(field, f"updates to {field} are forbidden.") for field in changed]


class VolumeAttributesClassStrategy(BuiltInStrategy):
    def admit_create(self, obj: Object) -> None:
        _protect(obj, ATTRIBUTES_CLASS_PROTECTION)

    def validate(self, obj: Object) -> list[FieldError]:
        missing = [] if obj.get("driverName") else [required("driverName")]
        if obj.get("parameters"):
            return missing
        return [*missing, required("parameters", "must contain at least one key/value pair")]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        fixed = ("driverName", "parameters")
        changed = [field for field in fixed if (obj.get(field) or None) != (old.get(field) or None)]
        return [forbidden(field, f"updates to {field} are forbidden.") for field in changed]


class CSIDriverStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for field, value in _DRIVER_DEFAULTS.items():
            if spec.get(field) is None:
                spec[field] = value
        spec["volumeLifecycleModes"] = spec.get("volumeLifecycleModes") or ["Persistent"]

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        super().prepare_for_update(obj, old)
        # The real server counts changes, but gives a new driver no generation.
        if self.raises_generation(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        # The first path is spelled as the real server spells it.
        fixed = (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes"))
        return [
            invalid(f"spec.{path}", obj["spec"].get(field), "field is immutable")
            for field, path in fixed
            if obj["spec"].get(field) != old["spec"].get(field)
        ]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj["spec"]
        requests = spec.get("tokenRequests")
        unchanged = old is not None and old["spec"].get("tokenRequests") == requests
        if not requests or unchanged or spec.get("serviceAccountTokenInSecrets") is not None:
            return []
        return [_TOKENS_IN_ATTRIBUTES]


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def _storage(claim: Object) -> Any:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")

"""Pods: defaults, quality of service, and the fields that may change."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.pods import validation
from kapsa.devcluster.embedded.strategies.pods.app_armor import PREFIX, validate_annotations
from kapsa.devcluster.embedded.strategies.pods.defaults import default_pod, default_pod_spec
from kapsa.devcluster.embedded.strategies.pods.parts import PART_CHECKS, keep_all_but_part
from kapsa.devcluster.embedded.strategies.pods.quality import quality_of_service
from kapsa.devcluster.embedded.strategies.pods.updates import validate_spec_update
from kapsa.devcluster.embedded.strategies.pods.warnings import name_warnings, pod_spec_warnings
from kapsa.schemas.field_errors import FieldError, forbidden, invalid

_NOT_READY = "node.kubernetes.io/not-ready"
_MIRROR = "kubernetes.io/config.mirror"
_UNREACHABLE = "node.kubernetes.io/unreachable"


class PodStrategy(BuiltInStrategy):
    """Strategy of pods. Almost all of a pod's spec is immutable."""

    reset_by_status = ("ownerReferences",)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        default_pod(spec)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        if old is not None:
            return []
        warnings = name_warnings(obj["metadata"]["name"], "the Pod's hostname")
        return warnings + pod_spec_warnings(obj["spec"], "spec")

    def admit_create(self, obj: Object) -> None:
        _default_tolerations(obj["spec"])

    def initial_status(self, obj: Object) -> dict[str, Any]:
        status: dict[str, Any] = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        return status

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        # Admission may have set requests and limits.
        obj["status"]["qosClass"] = quality_of_service(obj["spec"])
        for condition in obj["status"].get("conditions") or ():
            condition["lastTransitionTime"] = obj["metadata"]["creationTimestamp"]

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        super().prepare_for_update(obj, old)
        # The plugin that sets them on creation also restores them.
        _default_tolerations(obj["spec"])

    def prepare_for_status(self, obj: Object, old: Object) -> None:
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        # Old kubelets dropped what they did not set.
        for field in ("qosClass", "observedGeneration"):
            if not status.get(field) and before.get(field):
                status[field] = before[field]
        observed = {
            each.get("type"): each.get("observedGeneration") for each in before.get("conditions") or ()
        }
        for condition in status.get("conditions") or ():
            generation = observed.get(condition.get("type"))
            if generation and not condition.get("observedGeneration"):
                condition["observedGeneration"] = generation

    def validate(self, obj: Object) -> list[FieldError]:
        annotations = obj["metadata"].get("annotations") or {}
        errors: list[FieldError] = []
        if _MIRROR in annotations and not obj["spec"].get("nodeName"):
            detail = "must set spec.nodeName if mirror pod annotation is set"
            errors.append(invalid(f"metadata.annotations[{_MIRROR}]", annotations[_MIRROR], detail))
        errors += validation.validate_pod_spec(obj["spec"], "spec", obj["metadata"].get("name") or "")
        errors += validation.validate_image_volumes(obj["spec"], "spec")
        return errors + validation.validate_images(obj["spec"], "spec")

    def validate_create(self, obj: Object) -> list[FieldError]:
        errors = [*validate_annotations(obj), *self.validate(obj)]
        if obj["spec"].get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if obj["spec"].get("nodeName") and obj["spec"].get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(forbidden("spec.nodeName", detail))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj) + _fixed_annotations_changed(obj, old)
        return errors + validate_spec_update(obj["spec"], old["spec"])

    def prepare_for_part(self, subresource: str, obj: Object, old: Object) -> None:
        keep_all_but_part(subresource, obj, old)

    def validate_part(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj) + PART_CHECKS[subresource](obj, old)

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = old["spec"].get("nodeName", ""), obj["spec"].get("nodeName", "")
        if before != after:
            return [forbidden("status.nodeName", "may not be changed directly")]
        errors = _fixed_annotations_changed(obj, old)
        quality, original = ((each.get("status") or {}).get("qosClass") for each in (obj, old))
        if quality != original:
            errors.append(invalid("status.qosClass", quality, "field is immutable"))
        return errors

    def grace_seconds(self, obj: Object, requested: int | None) -> int | None:
        if requested is None:
            requested = obj["spec"].get("terminationGracePeriodSeconds")
            requested = 30 if requested is None else int(requested)
        ended = (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        # Without a node there is no kubelet to stop the pod, and a finished pod needs no stopping.
        return 0 if ended or not obj["spec"].get("nodeName") else requested


def _default_tolerations(spec: Object) -> None:
    """Apply the DefaultTolerationSeconds admission plugin: five minutes on a lost node."""
    tolerations = spec.get("tolerations") or []
    for key in (_NOT_READY, _UNREACHABLE):
        covered = any(
            t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "")
            for t in tolerations
        )
        if not covered:
            tolerations = [
                *tolerations,
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]
    spec["tolerations"] = tolerations


def _fixed_annotations_changed(obj: Object, old: Object) -> list[FieldError]:
    """Return the errors of an update that changes annotations which a pod keeps for life."""
    before, after = (each["metadata"].get("annotations") or {} for each in (old, obj))
    errors = []
    for key in before.keys() | after.keys():
        kind = "mirror pod annotation" if key == _MIRROR else "AppArmor annotations"
        if (key == _MIRROR or key.startswith(PREFIX)) and before.get(key) != after.get(key):
            action = "remove or update" if key in before else "add"
            errors.append(forbidden(f"metadata.annotations[{key}]", f"may not {action} {kind}"))
    return errors

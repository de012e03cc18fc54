"""PersistentVolumes and their claims."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.cluster.volume_updates import claim_changes, volume_changes
from kapsa.devcluster.embedded.strategies.cluster.volume_validation import validate_volume_spec
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.claims import validate_claim_spec
from kapsa.devcluster.embedded.strategies.generic.node_selectors import deprecated_labels
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.quantities import canonical

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
_SNAPSHOTS = "snapshot.storage.k8s.io"


class PersistentVolumeClaimStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("volumeMode") is None:
            spec["volumeMode"] = "Filesystem"
        for amounts in (spec.get("resources") or {}).values():
            for name in amounts or ():
                amounts[name] = canonical(amounts[name])

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"phase": "Pending"}

    def admit_create(self, obj: Object) -> None:
        _protect(obj, CLAIM_PROTECTION)

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        _normalize_sources(obj["spec"])

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        super().prepare_for_update(obj, old)
        _normalize_sources(obj["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_claim_spec(obj["spec"], "spec")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return claim_changes(obj, old)


class PersistentVolumeStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
        if spec.get("volumeMode") is None:
            spec["volumeMode"] = "Filesystem"
        for name, amount in (spec.get("capacity") or {}).items():
            spec["capacity"][name] = canonical(amount)
        if spec.get("hostPath") is not None and spec["hostPath"].get("type") is None:
            spec["hostPath"]["type"] = ""

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"phase": "Pending"}

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        obj["status"]["lastPhaseTransitionTime"] = obj["metadata"]["creationTimestamp"]

    def admit_create(self, obj: Object) -> None:
        _protect(obj, VOLUME_PROTECTION)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_volume_spec(obj["spec"], "spec")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return volume_changes(obj, old)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        path = "spec.nodeAffinity.required.nodeSelectorTerms"
        required = (obj["spec"].get("nodeAffinity") or {}).get("required") or {}
        terms = required.get("nodeSelectorTerms") or ()
        return [
            text for index, term in enumerate(terms) for text in deprecated_labels(term, f"{path}[{index}]")
        ]


def _normalize_sources(spec: Object) -> None:
    """Give a new claim both fields for its source, of which old clients know only the first."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        if (source.get("apiGroup") or "", source.get("kind")) not in _OLD_SOURCES:
            # Old servers ignored what they could not restore, so this is not an error.
            del spec["dataSource"]
        else:
            spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {k: v for k, v in reference.items() if k != "namespace"}


_OLD_SOURCES = (("", "PersistentVolumeClaim"), (_SNAPSHOTS, "VolumeSnapshot"))


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]

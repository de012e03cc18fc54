"""Namespaces: their own finalizer, phase, and the label with their name."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import LABEL_KEY
from kapsa.schemas.field_errors import FieldError, invalid

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"


class NamespaceStrategy(BuiltInStrategy):
    """Strategy of namespaces.

    A namespace is removed once `spec.finalizers` is empty. Only the finalize subresource can change that
    field.
    """

    def default(self, obj: Object) -> None:
        metadata = obj["metadata"]
        if metadata.get("name"):
            metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"phase": "Active"}

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        if FINALIZER not in finalizers:
            finalizers = [*finalizers, FINALIZER]
        obj["spec"] = {"finalizers": finalizers}

    def reset_for_update(self, obj: Object, old: Object) -> None:
        super().reset_for_update(obj, old)
        obj["spec"] = old.get("spec") or {}

    def validate_create(self, obj: Object) -> list[FieldError]:
        finalizers = obj["spec"].get("finalizers") or ()
        return [error for name in finalizers for error in _finalizer(name, "spec.finalizers")]

    def validate_part(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        return [
            error
            for index, name in enumerate(finalizers)
            for error in _finalizer(name, f"spec.finalizers[{index}]")
        ]

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        phase = (obj.get("status") or {}).get("phase") or ""
        is_ending = bool(obj["metadata"].get("deletionTimestamp"))
        if phase == ("Terminating" if is_ending else "Active"):
            return []
        only = (
            "'Terminating' if `deletionTimestamp` is not empty"
            if is_ending
            else "'Active' if `deletionTimestamp` is empty"
        )
        return [invalid("status.Phase", phase, f"may only be {only}")]

    def defer_deletion(self, obj: Object, now: str) -> bool:
        obj["metadata"]["deletionTimestamp"] = now
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return True

    def may_go(self, obj: Object) -> bool:
        return not (obj.get("spec") or {}).get("finalizers")

    def default_propagation(self, obj: Object) -> str:
        return "background"


def _finalizer(name: str, path: str) -> list[FieldError]:
    errors = LABEL_KEY(name, path)
    if "/" not in name and name != FINALIZER:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors = [*errors, invalid(path, name, detail)]
    return errors

"""The strategies of CustomResourceDefinitions and of custom resources."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds.names import label_key
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.strategies.custom.definition_names import CLEANUP, set_condition
from kapsa.devcluster.embedded.strategies.generic.strategy import Strategy
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas import field_errors
from kapsa.schemas.field_errors import FieldError

__all__ = ["CustomResourceStrategy", "DefinitionStrategy"]

Object = dict[str, Any]
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_MAX_INT32 = (1 << 31) - 1


class DefinitionStrategy(Strategy):
    """Strategy of CustomResourceDefinitions. Their large validation is imported with the first definition."""

    def reset_for_create(self, obj: Object) -> None:
        from kapsa.devcluster.embedded.strategies.custom import definition_validation

        definition_validation.set_defaults(obj)
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
        _record_storage_version(obj)

    def reset_for_update(self, obj: Object, old: Object) -> None:
        from kapsa.devcluster.embedded.strategies.custom import definition_validation

        super().reset_for_update(obj, old)
        definition_validation.set_defaults(obj)
        _record_storage_version(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        from kapsa.devcluster.embedded.strategies.custom import definition_validation

        return definition_validation.validate_definition(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        from kapsa.devcluster.embedded.strategies.custom import definition_validation

        return definition_validation.validate_definition_update(obj, old)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        from kapsa.devcluster.embedded.strategies.custom import definition_validation

        return definition_validation.warnings(obj, old)

    def defer_deletion(self, obj: Object, now: str) -> bool:
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = now
        finalizers = metadata.get("finalizers") or []
        metadata["finalizers"] = finalizers if CLEANUP in finalizers else [*finalizers, CLEANUP]
        text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending", text, now)
        return True


class CustomResourceStrategy(Strategy):
    """Strategy of custom resources."""

    def reset_for_create(self, obj: Object) -> None:
        definition = self.info.definition or {}
        if definition.get("metadata", {}).get("deletionTimestamp"):
            text = "create not allowed while custom resource definition is terminating"
            raise errors.StatusError(405, "MethodNotAllowed", text, details=_details(self.info))
        super().reset_for_create(obj)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return [*_check_count(obj, self._scale("specReplicasPath")), *self._check_scale_status(obj)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate_create(obj)

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        return self._check_scale_status(obj)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        before = set((old or {}).get("metadata", {}).get("finalizers") or ())
        added = sorted(set(obj["metadata"].get("finalizers") or ()) - before)
        return [text for finalizer in added for text in _finalizer_warnings(finalizer)]

    def _scale(self, key: str) -> str:
        for version in (self.info.definition or {}).get("spec", {}).get("versions", ()):
            if version["name"] == self.info.version:
                scale = (version.get("subresources") or {}).get("scale") or {}
                return str(scale.get(key) or "")
        return ""

    def _check_scale_status(self, obj: Object) -> list[FieldError]:
        errors_ = _check_count(obj, self._scale("statusReplicasPath"))
        path = self._scale("labelSelectorPath")
        try:
            selector = _dig(obj, path) if path else None
        except _NotAMapError as error:
            return [*errors_, field_errors.invalid(path, "", str(error))]
        if selector is not None and not isinstance(selector, str):
            errors_.append(field_errors.invalid(path, "", _accessor_error(path, selector, "string")))
        return errors_


def _details(info: ResourceInfo) -> dict[str, Any]:
    return {"group": info.group, "kind": info.resource}


def _record_storage_version(crd: Object) -> None:
    stored = crd["status"].setdefault("storedVersions", [])
    for version in crd["spec"].get("versions") or ():
        if version.get("storage"):
            name = version.get("name", "")
            if name not in stored:
                stored.append(name)
            return


class _NotAMapError(ValueError):
    """A path that leads through a value that is not an object."""


def _dig(obj: Any, path: str) -> Any:
    for part in path.removeprefix(".").split("."):
        if obj is None:
            return None
        if not isinstance(obj, dict):
            raise _NotAMapError(_accessor_error(path, obj, "map[string]interface{}"))
        obj = obj.get(part)
    return obj


def _check_count(obj: Object, path: str) -> list[FieldError]:
    if not path:
        return []
    try:
        count = _dig(obj, path)
    except _NotAMapError as error:
        return [field_errors.invalid(path, 0, str(error))]
    if count is None:
        return []
    if not isinstance(count, int) or isinstance(count, bool):
        return [field_errors.invalid(path, 0, _accessor_error(path, count, "int64"))]
    if count < 0:
        return [field_errors.invalid(path, count, "should be a non-negative integer")]
    if count > _MAX_INT32:
        return [field_errors.invalid(path, count, f"should be less than or equal to {_MAX_INT32}")]
    return []


def _accessor_error(path: str, value: Any, expected: str) -> str:
    types = {str: "string", bool: "bool", float: "float64", int: "int64", list: "[]interface {}"}
    actual = types.get(type(value), "map[string]interface {}")
    shown = field_errors.render_value(value).strip('"')
    return f"{path} accessor error: {shown} is of the type {actual}, expected {expected}"


def _finalizer_warnings(finalizer: str) -> list[str]:
    prefix = f'metadata.finalizers: "{finalizer}": '
    warnings = [prefix + text for text in label_key(finalizer)]
    if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
        path = " including a path (/)" if "." in finalizer else ""
        warnings.append(
            f"{prefix}prefer a domain-qualified finalizer name{path} "
            "to avoid accidental conflicts with other finalizer writers"
        )
    return warnings

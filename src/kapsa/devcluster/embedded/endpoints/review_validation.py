"""Validation of access reviews."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import LABEL_KEY, Check, each, fields, given, present
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, required
from kapsa.schemas.go_format import GoStruct

__all__ = ["validate_access_review", "validate_local_review", "validate_self_review"]

Object = dict[str, Any]


def validate_self_review(obj: Object) -> list[FieldError]:
    """Return the errors in a review of the user who requests it."""
    spec = obj.get("spec") or {}
    return _attributes(spec) + _selectors(spec) + _metadata(obj, "must be empty")


def validate_access_review(obj: Object) -> list[FieldError]:
    """Return the errors in a review of any user."""
    spec = obj.get("spec") or {}
    return _subject_spec(spec) + _metadata(obj, "must be empty")


def validate_local_review(obj: Object, namespace: str) -> list[FieldError]:
    """Return the errors in a review of any user in one namespace."""
    spec = obj.get("spec") or {}
    errors = _subject_spec(spec) + _metadata(obj, "must be empty except for namespace", "namespace")
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    requested = (resource or {}).get("namespace") or ""
    if resource is not None and requested != namespace:
        detail = "must match metadata.namespace"
        errors.append(invalid("spec.resourceAttributes.namespace", requested, detail))
    if path is not None:
        detail = "disallowed on this kind of request"
        errors.append(invalid("spec.nonResourceAttributes", _shown(path), detail))
    return errors


def _subject_spec(spec: Object) -> list[FieldError]:
    errors = _attributes(spec)
    if not spec.get("user") and not spec.get("groups"):
        detail = "at least one of user or group must be specified"
        errors.append(invalid("spec.user", "", detail))
    return errors + _selectors(spec)


def _attributes(spec: Object) -> list[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", _shown(path), detail)]
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, detail)]
    return []


def _shown(path: Object) -> GoStruct:
    return GoStruct(Path=path.get("path", ""), Verb=path.get("verb", ""))


def _metadata(obj: Object, detail: str, *allowed: str) -> list[FieldError]:
    metadata = obj.get("metadata") or {}
    extra = [field for field, value in metadata.items() if value and field not in ("managedFields", *allowed)]
    return [invalid("metadata", metadata, detail)] if extra else []


def _selector(requirement: Check) -> Check:
    def check(selector: Object, path: str) -> list[FieldError]:
        raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
        errors: list[FieldError] = []
        if raw and requirements:
            detail = "may not specified at the same time as requirements"
            errors.append(invalid(f"{path}.rawSelector", raw, detail))
        if not raw and not requirements:
            detail = f"when {path} is specified, requirements or rawSelector is required"
            errors.append(required(f"{path}.requirements", detail))
        return errors + each(requirement)(requirements, f"{path}.requirements")

    return check


def _values(requirement: Object, path: str) -> list[FieldError]:
    """Return the errors in the values of a requirement. Unknown operators are left to the authorizer."""
    operator, values = requirement.get("operator"), requirement.get("values")
    if operator in ("In", "NotIn") and not values:
        return [required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{path}.values", detail)]
    return []


def _field_requirement(requirement: Object, path: str) -> list[FieldError]:
    key = present(detail="must be specified")(requirement.get("key"), f"{path}.key")
    return key + _values(requirement, path)


def _label_requirement(requirement: Object, path: str) -> list[FieldError]:
    return _values(requirement, path) + LABEL_KEY(requirement.get("key"), f"{path}.key")


_SELECTORS = fields(
    fieldSelector=given(_selector(_field_requirement)), labelSelector=given(_selector(_label_requirement))
)


def _selectors(spec: Object) -> list[FieldError]:
    return _SELECTORS(spec.get("resourceAttributes"), "spec.resourceAttributes")

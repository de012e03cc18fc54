"""Object metadata: the fields that only the system sets, and validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.status_errors import bad_request
from kapsa.schemas import field_errors, go_format
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.go_format import GoStruct

__all__ = [
    "check_namespace",
    "initialize",
    "is_deleted",
    "keep_system_fields",
    "validate",
    "validate_change",
    "wipe_system_fields",
]

Object = dict[str, Any]

_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OWNER_ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_ANNOTATIONS_LIMIT = 256 * 1024
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_STANDARD_FINALIZERS = (_ORPHAN, _FOREGROUND, "kubernetes")


def is_deleted(obj: Object) -> bool:
    """Return whether the deletion of an object has begun."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def check_namespace(info: ResourceInfo, obj: Object, namespace: str) -> None:
    """Set the object's namespace from the request. Raises StatusError 400 when it names another."""
    metadata = obj["metadata"]
    given = metadata.get("namespace") or ""
    expected = namespace if info.namespaced else ""
    if not given:
        if expected:
            metadata["namespace"] = expected
    elif not info.namespaced:
        # The real server ignores the namespace of a cluster-scoped object.
        metadata.pop("namespace")
    elif given != expected:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def wipe_system_fields(obj: Object) -> None:
    """Drop the fields of a new object that only the system sets."""
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        obj["metadata"].pop(field, None)


def initialize(obj: Object, *, uid: str, now: str) -> None:
    """Set the uid and creation time of a new object."""
    obj["metadata"] |= {"uid": uid, "creationTimestamp": now}


def keep_system_fields(obj: Object, old: Object) -> None:
    """Restore the fields that an update never changes."""
    metadata, before = obj["metadata"], old["metadata"]
    metadata.pop("selfLink", None)
    if not metadata.get("uid"):
        metadata["uid"] = before["uid"]
    metadata["creationTimestamp"] = before["creationTimestamp"]
    if "generation" in before:
        metadata["generation"] = before["generation"]
    else:
        metadata.pop("generation", None)
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if (
        before.get("deletionGracePeriodSeconds") is not None
        and metadata.get("deletionGracePeriodSeconds") is None
    ):
        metadata["deletionGracePeriodSeconds"] = before["deletionGracePeriodSeconds"]


def validate(info: ResourceInfo, obj: Object, validator: names.NameValidator) -> list[FieldError]:
    """Return the problems of an object's metadata."""
    metadata = obj["metadata"]
    errors: list[FieldError] = []
    generate_name, name = metadata.get("generateName"), metadata.get("name")
    if generate_name:
        errors += _invalid("generateName", generate_name, validator(generate_name, True))
    if not name:
        errors.append(field_errors.required("metadata.name", "name or generateName is required"))
    else:
        errors += _invalid("name", name, validator(name, False))
    if info.namespaced:
        namespace = metadata.get("namespace", "")
        errors += _invalid("namespace", namespace, names.dns1123_label(namespace))
    if metadata.get("labels"):
        errors.extend(_labels(metadata["labels"]))
    if metadata.get("annotations"):
        errors.extend(_annotations(metadata["annotations"]))
    if metadata.get("ownerReferences"):
        errors.extend(_owners(metadata["ownerReferences"]))
    if metadata.get("finalizers"):
        errors.extend(_finalizers(metadata["finalizers"]))
        if not info.is_custom:
            errors.extend(_finalizer_names(metadata["finalizers"]))
    return errors


def validate_change(info: ResourceInfo, obj: Object, old: Object) -> list[FieldError]:
    """Return the problems of an update's metadata, twice as the real server: for every kind, and by the kind."""
    common = validate(info, obj, names.path_segment)
    change = _validate_update(obj, old)
    return [*common, *change, *change, *([] if info.is_custom else common)]


def _invalid(field: str, value: Any, problems: list[str]) -> list[FieldError]:
    return [field_errors.invalid(f"metadata.{field}", value, problem) for problem in problems]


def _labels(labels: Mapping[str, str]) -> list[FieldError]:
    errors = []
    for key, value in labels.items():
        errors += _invalid("labels", key, names.label_key(key))
        errors += _invalid("labels", value, names.label_value(value))
    return errors


def _annotations(annotations: Mapping[str, str]) -> list[FieldError]:
    errors = []
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len(value.encode())
        errors += _invalid("annotations", key, names.label_key(key.lower()))
    if size > _ANNOTATIONS_LIMIT:
        errors.append(field_errors.too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    return errors


def _owners(references: list[dict[str, Any]]) -> list[FieldError]:
    path = "metadata.ownerReferences"
    errors = []
    controller = ""
    references = [
        GoStruct({field: reference[field] for field in _OWNER_ORDER if field in reference})
        for reference in references
    ]
    for reference in references:
        api_version = reference.get("apiVersion", "")
        if not api_version:
            errors.append(
                field_errors.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
            )
        errors += [
            field_errors.invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not reference.get(field)
        ]
        if (api_version, reference.get("kind")) == ("v1", "Event"):
            detail = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(field_errors.invalid(path, reference, detail))
        if reference.get("controller"):
            current = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {current}"
                )
                errors.append(field_errors.invalid(path, references, detail))
            else:
                controller = current
    return errors


def _finalizers(finalizers: list[str]) -> list[FieldError]:
    path = "metadata.finalizers"
    errors = [
        field_errors.invalid(path, finalizer, problem)
        for finalizer in finalizers
        for problem in names.label_key(finalizer)
    ]
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        errors.append(field_errors.invalid(path, finalizers, detail))
    return errors


def _finalizer_names(finalizers: list[str]) -> list[FieldError]:
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        field_errors.invalid(f"metadata.finalizers[{index}]", finalizer, detail)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Return the changes of metadata that an update must not make."""
    metadata, before = obj["metadata"], old["metadata"]
    errors = []
    if before.get("deletionTimestamp"):
        extra = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if extra:
            listed = ", ".join(go_format.quote(finalizer) for finalizer in extra)
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.append(field_errors.forbidden("metadata.finalizers", detail))
    for field in _IMMUTABLE:
        after = metadata.get(field)
        if after != before.get(field):
            shown = after or "" if field in ("name", "namespace", "uid") else after
            errors += _invalid(field, shown, ["field is immutable"])
    return errors

"""Structurality: the form of `openAPIV3Schema` that makes it possible to prune and default objects.

The constraints and their messages follow ValidateStructural of apiextensions-apiserver. They are checked on
the JSON as written, not on the parsed node, because most of them forbid a key.
"""

from __future__ import annotations

from typing import Any

from kapsa.schemas import field_errors, go_regexp
from kapsa.schemas.field_errors import FieldError

__all__ = ["validate_structural"]

Raw = dict[str, Any]
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_TYPE_REQUIRED = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_MUST_BE_EMPTY = (
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
)
_MUST_BE_UNDEFINED = ("x-kubernetes-list-type", "x-kubernetes-map-type")
_METADATA_MAY_HAVE = frozenset({"type", "properties", "default"})


def validate_structural(schema: Raw, path: str) -> list[FieldError]:
    """Return the violations of structurality, sorted by their text."""
    errors = [*_invariants(schema, "root", path), *_branch_completeness(schema, schema, path, path)]
    return sorted(errors, key=str)


def _key(path: str, name: str) -> str:
    return f"{path}.properties[{name}]"


def _invariants(schema: Raw, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    items, additional = schema.get("items"), schema.get("additionalProperties")
    if schema.get("type") == "array" and not items:
        errors.append(field_errors.required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        errors += _invariants(items, "item", f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        errors += _invariants(child, "field", _key(path, name))
    if additional is not None:
        if level == "root":
            errors.append(
                field_errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
            )
        if isinstance(additional, dict):
            errors += _invariants(additional, "field", f"{path}.additionalProperties")
    errors += _int_or_string(schema, path)
    errors += _value_validation(
        schema,
        path,
        skip_any_of=schema.get("anyOf") == _INT_OR_STRING,
        skip_first_all_of=bool(schema.get("allOf")) and schema["allOf"][0].get("anyOf") == _INT_OR_STRING,
    )
    errors += _type_rules(schema, level, path)
    errors += _metadata_rules(schema, level, path)
    return errors


def _int_or_string(schema: Raw, path: str) -> list[FieldError]:
    if not schema.get("x-kubernetes-int-or-string"):
        return []
    return [
        field_errors.invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
        if schema.get(name)
    ]


def _type_rules(schema: Raw, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    type_, embedded = schema.get("type") or "", schema.get("x-kubernetes-embedded-resource")
    preserved = schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and type_ != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        if type_:
            errors.append(field_errors.invalid(f"{path}.type", type_, text))
        else:
            errors.append(field_errors.required(f"{path}.type", text))
    elif not type_ and not schema.get("x-kubernetes-int-or-string") and not preserved:
        errors.append(field_errors.required(f"{path}.type", _TYPE_REQUIRED[level]))
    if embedded and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        errors.append(field_errors.forbidden(f"{path}.additionalProperties", text))
    if level == "root" and type_ and type_ != "object":
        errors.append(field_errors.invalid(f"{path}.type", type_, "must be object at the root"))
    if embedded and not preserved and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true "
            "without x-kubernetes-preserve-unknown-fields"
        )
        errors.append(field_errors.required(f"{path}.properties", text))
    return errors


def _metadata_rules(schema: Raw, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    properties = schema.get("properties") or {}
    checked = level == "root" or schema.get("x-kubernetes-embedded-resource")
    for name in ("kind", "apiVersion"):
        if checked and name in properties and properties[name].get("type") != "string":
            where = f"{_key(path, name)}.type"
            errors.append(field_errors.invalid(where, properties[name].get("type", ""), "must be string"))
    metadata = properties.get("metadata")
    if metadata is None:
        return errors
    where = _key(path, "metadata")
    if checked and metadata.get("type") != "object":
        errors.append(field_errors.invalid(f"{where}.type", metadata.get("type", ""), "must be object"))
    if level == "root":
        named = set(metadata.get("properties") or {})
        extra = {key for key, value in metadata.items() if value} - _METADATA_MAY_HAVE
        if extra or not named <= {"name", "generateName"}:
            text = (
                "must not specify anything other than name and generateName, "
                "but metadata is implicitly specified"
            )
            errors.append(field_errors.forbidden(where, text))
    return errors


def _value_validation(
    schema: Raw, path: str, *, skip_any_of: bool = False, skip_first_all_of: bool = False
) -> list[FieldError]:
    errors: list[FieldError] = []
    if not skip_any_of:
        for index, branch in enumerate(schema.get("anyOf") or ()):
            errors += _nested(branch, f"{path}.anyOf[{index}]")
    for index, branch in enumerate(schema.get("allOf") or ()):
        first = skip_first_all_of and index == 0
        errors += _nested(branch, f"{path}.allOf[{index}]", skip_any_of=first)
    for index, branch in enumerate(schema.get("oneOf") or ()):
        errors += _nested(branch, f"{path}.oneOf[{index}]")
    if schema.get("not") is not None:
        errors += _nested(schema["not"], f"{path}.not")
    pattern = schema.get("pattern")
    if pattern:
        try:
            go_regexp.compile_pattern(pattern)
        except go_regexp.GoRegexpError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            errors.append(field_errors.invalid(f"{path}.pattern", pattern, text))
    return errors


def _nested(schema: Raw, path: str, *, skip_any_of: bool = False) -> list[FieldError]:
    """Check a branch under a logical junctor, which may restrict values but not describe structure."""
    errors = _value_validation(schema, path, skip_any_of=skip_any_of)
    if isinstance(schema.get("items"), dict):
        errors += _nested(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        errors += _nested(child, _key(path, name))
    if schema.get("type"):
        errors.append(field_errors.forbidden(f"{path}.type", "must be empty to be structural"))
    if schema.get("additionalProperties") is not None:
        where = f"{path}.additionalProperties"
        errors.append(field_errors.forbidden(where, "must be undefined to be structural"))
    if schema.get("default") is not None:
        errors.append(field_errors.forbidden(f"{path}.default", "must be undefined to be structural"))
    errors += [
        field_errors.forbidden(f"{path}.{name}", text) for name, text in _MUST_BE_EMPTY if schema.get(name)
    ]
    errors += [
        field_errors.forbidden(f"{path}.{name}", "must be undefined to be structural")
        for name in _MUST_BE_UNDEFINED
        if schema.get(name) is not None
    ]
    if schema.get("x-kubernetes-validations"):
        where = f"{path}.x-kubernetes-validations"
        errors.append(field_errors.forbidden(where, "must be empty to be structural"))
    if "metadata" in (schema.get("properties") or {}):
        text = "must not be specified in a nested context"
        errors.append(field_errors.forbidden(_key(path, "metadata"), text))
    return errors


def _branch_completeness(validation: Raw, structure: Raw, where: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if validation.get("not") is not None:
        errors += _completeness(validation["not"], structure, where, f"{path}.not")
    for junctor in ("allOf", "anyOf", "oneOf"):
        for index, branch in enumerate(validation.get(junctor) or ()):
            errors += _completeness(branch, structure, where, f"{path}.{junctor}[{index}]")
    return errors


def _completeness(validation: Raw, structure: Raw | None, where: str, path: str) -> list[FieldError]:
    """Check that each field a branch restricts is described outside of the branches."""
    if structure is None:
        return [field_errors.required(where, f"because it is defined in {path}")]
    errors = _branch_completeness(validation, structure, where, path)
    if isinstance(validation.get("items"), dict):
        errors += _completeness(
            validation["items"], structure.get("items"), f"{where}.items", f"{path}.items"
        )
    described = structure.get("properties") or {}
    for name, child in (validation.get("properties") or {}).items():
        errors += _completeness(child, described.get(name), _key(where, name), _key(path, name))
    return errors

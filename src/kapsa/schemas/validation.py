"""Validation of an object against its schema, in the order and the words of kube-apiserver.

It follows kube-openapi's validator and the strategy of apiextensions-apiserver: OpenAPI facets first, then
embedded resources, then list uniqueness, then CEL rules. An update does not fail on values that it leaves
unchanged (ratcheting).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from kapsa.schemas import field_errors, go_format, go_regexp, string_formats
from kapsa.schemas.embedded_resources import validate_embedded
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.list_types import correlate, validate_lists
from kapsa.schemas.pruning import unknown_fields
from kapsa.schemas.schema import Schema, walk

__all__ = ["FieldError", "unknown_fields", "validate", "validate_at", "validate_status"]

_BLOCKING = frozenset(
    {
        field_errors.NOT_SUPPORTED,
        field_errors.REQUIRED,
        field_errors.TOO_LONG,
        field_errors.TOO_MANY,
        field_errors.TYPE_INVALID,
    }
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_INT64 = 1 << 63
_INT_RANGES = {"int32": 1 << 31, "int64": _INT64}
_FREE_TEXT_CHECKS = 6
"""The number that `_check` returns for a string without facets."""
_ABSENT: Any = object()
_Errors = dict[str, FieldError]

_has_rules: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


def validate(
    schema: Schema | None,
    obj: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    before: Sequence[FieldError] = (),
    after: Sequence[FieldError] = (),
    warnings: list[str] | None = None,
) -> list[FieldError]:
    """Return all errors in `obj`; `old` is the stored object of an update.

    The caller's own errors go `before` and `after` those of the facets. Any of them can keep the rules from
    being checked. Rules that an unchanged value breaks are added to `warnings`.
    """
    if schema is None:
        return [*before, *after]
    previous = _ABSENT if old is None else old
    errors: _Errors = {}
    _check(schema, obj, "", errors, previous)
    return _finish(schema, obj, old, [*before, *errors.values(), *after], warnings)


def validate_status(
    schema: Schema | None,
    obj: dict[str, Any],
    old: dict[str, Any],
    *,
    before: Sequence[FieldError] = (),
    after: Sequence[FieldError] = (),
    warnings: list[str] | None = None,
) -> list[FieldError]:
    """Return the errors of an update through the status subresource; only facets of `status` are checked."""
    if schema is None:
        return [*before, *after]
    errors: list[FieldError] = []
    status = schema.properties.get("status")
    if status is not None and "status" in obj:
        facets: _Errors = {}
        _check(status, obj["status"], "", facets, old.get("status"))
        errors = [_under("status", error) for error in facets.values()]
    return _finish(schema, obj, old, [*before, *errors, *after], warnings)


def validate_at(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Return the errors in the facets of one value at `path`, such as a default in a CRD."""
    errors: _Errors = {}
    _check(schema, value, "", errors)
    return [_under(path, error) for error in errors.values()]


def _finish(
    schema: Schema,
    obj: dict[str, Any],
    old: dict[str, Any] | None,
    errors: list[FieldError],
    warnings: list[str] | None,
) -> list[FieldError]:
    errors += validate_embedded(schema, obj)
    duplicates = validate_lists(schema, obj)
    if duplicates and (old is None or not validate_lists(schema, old)):
        errors += duplicates
    if has_rules(schema):
        if any(error.reason in _BLOCKING for error in errors):
            errors.append(field_errors.invalid("<nil>", None, _UNCHECKED))
        else:
            # Loading CEL takes a moment, so it is loaded with the first rule that runs.
            from kapsa.schemas.cel.rules import check_rules

            errors += check_rules(schema, obj, old, warnings)
    return errors


def has_rules(schema: Schema) -> bool:
    """Return whether any node has CEL rules."""
    cached = _has_rules.get(schema)
    if cached is None:
        _has_rules[schema] = cached = any(node.rules for node in walk(schema))
    return cached


def _under(prefix: str, error: FieldError) -> FieldError:
    name = prefix
    if error.field != "<nil>":
        name += error.field if error.field.startswith("[") else f".{error.field}"
    return FieldError(error.reason, name, error.value, error.detail)


def _kind_of(value: Any) -> tuple[str, str]:
    """Return the JSON type of a decoded value, and its format in kube-openapi."""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        return ("integer", "int64") if -_INT64 <= value < _INT64 else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _add(errors: _Errors, reason: str, path: str, value: Any, text: str) -> None:
    if text not in errors:
        name = path[1:] if path.startswith(".") else path
        errors[text] = FieldError(reason, name or "<nil>", value, text)


def _type_error(errors: _Errors, path: str, expected: str, actual: str) -> None:
    text = f"{path} in body must be of type {expected}: {go_format.quote(actual)}"
    _add(errors, field_errors.TYPE_INVALID, path, actual, text)


def _check(schema: Schema, value: Any, path: str, errors: _Errors, old: Any = _ABSENT) -> int:
    """Add the errors in a value to `errors`. Return the number of checks, by which anyOf picks a branch."""
    if old is not _ABSENT and old is not None and value == old and type(value) is type(old):
        return 1
    if value is None:
        if (schema.type or schema.int_or_string) and not schema.nullable:
            _type_error(errors, path, schema.type or "integer,string", "null")
        elif schema.enum is not None:
            _check_enum(schema, value, path, errors)
        return 1
    matches = 2
    if schema.type or schema.format or schema.int_or_string:
        matches += 1 + _check_type(schema, value, path, errors)
    matches += 1
    if schema.all_of or schema.any_of or schema.one_of or schema.not_ is not None:
        matches += _check_branches(schema, value, path, errors, old)
    if isinstance(value, str):
        matches += _check_string(schema, value, path, errors)
    elif isinstance(value, dict):
        matches += _check_object(schema, value, path, errors, old)
    elif isinstance(value, list):
        matches += _check_list(schema, value, path, errors, old)
    elif not isinstance(value, bool):
        # kube-apiserver decodes integers beyond 64 bits as floats.
        _check_number(schema, value if -_INT64 <= value < _INT64 else float(value), path, errors)
        matches += 2
    if schema.enum is not None:
        _check_enum(schema, value, path, errors)
    return matches


def _string_format(schema: Schema) -> str:
    """Return the format if it is checked for this type, "" if not."""
    if schema.type in ("", "string"):
        return schema.format if schema.format and string_formats.is_checked(schema.format) else ""
    if schema.type == "integer":
        return schema.format if schema.format in ("int32", "int64") else ""
    if schema.type == "number":
        return schema.format if schema.format in ("float", "double") else ""
    return ""


def _is_whole(value: float) -> bool:
    return value.is_integer() and abs(value) < 1 << 53


def _check_type(schema: Schema, value: Any, path: str, errors: _Errors) -> int:
    actual, actual_format = _kind_of(value)
    types = ("integer", "string") if schema.int_or_string else ((schema.type,) if schema.type else ())
    format_ = "" if not schema.format else _string_format(schema)
    whole = actual == "number" and "integer" in types and _is_whole(float(value))
    accepted = actual in types or whole or (actual == "integer" and "number" in types)
    textual = actual in ("string", "array")
    if format_ and not textual and not accepted and actual_format != format_:
        _type_error(errors, path, format_, actual_format)
        return 0
    if format_ and textual and "number" not in types and "integer" not in types:
        return 1
    if types and not accepted:
        _type_error(errors, path, ",".join(types), actual)
        return 0
    return 1


def _check_string(schema: Schema, value: str, path: str, errors: _Errors) -> int:
    if schema.max_length is not None and len(value) > schema.max_length:
        text = f"{path} in body should be at most {schema.max_length} chars long"
        errors.setdefault(text, field_errors.too_long(path or "<nil>", schema.max_length))
    elif schema.min_length is not None and len(value) < schema.min_length:
        text = f"{path} in body should be at least {schema.min_length} chars long"
        _add(errors, field_errors.INVALID, path, value, text)
    elif schema.pattern and not go_regexp.search(schema.pattern, value):
        _add(errors, field_errors.INVALID, path, value, f"{path} in body should match '{schema.pattern}'")
    if schema.format and schema.type in ("", "string") and string_formats.is_checked(schema.format):
        if not string_formats.matches(schema.format, value):
            text = f"{path} in body must be of type {schema.format}: {go_format.quote(value)}"
            _add(errors, field_errors.TYPE_INVALID, path, value, text)
        return 2
    return 1


def _check_number(schema: Schema, value: float, path: str, errors: _Errors) -> None:
    limit = _INT_RANGES.get(schema.format, _INT64) if schema.type == "integer" else None
    if limit is not None and not (-limit <= value < limit and value == int(value)):
        name = f"with format {schema.format}" if schema.format in _INT_RANGES else "(default format)"
        text = f"Checked value must be of type integer {name} in {path}"
        errors.setdefault(text, field_errors.invalid("<nil>", "", text))
    if schema.multiple_of is not None:
        _check_multiple(schema.multiple_of, value, path, errors)
    if schema.minimum is not None:
        exclusive = schema.exclusive_minimum
        if value < schema.minimum or (exclusive and value == schema.minimum):
            words = "greater than" if exclusive else "greater than or equal to"
            _add_bound(errors, path, value, words, schema.minimum)
    if schema.maximum is not None:
        exclusive = schema.exclusive_maximum
        if value > schema.maximum or (exclusive and value == schema.maximum):
            words = "less than" if exclusive else "less than or equal to"
            _add_bound(errors, path, value, words, schema.maximum)


def _add_bound(errors: _Errors, path: str, value: float, words: str, bound: float) -> None:
    shown = str(int(bound)) if isinstance(value, int) else go_format.format_float(float(bound))
    _add(errors, field_errors.INVALID, path, value, f"{path} in body should be {words} {shown}")


def _check_multiple(factor: float, value: float, path: str, errors: _Errors) -> None:
    if isinstance(value, int) and float(factor).is_integer():
        whole = value % int(factor) == 0
    else:
        quotient = value / factor
        whole = abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))
    if not whole:
        shown = go_format.format_float(float(factor))
        _add(errors, field_errors.INVALID, path, value, f"{path} in body should be a multiple of {shown}")


def _matches(value: Any, allowed: Any) -> bool:
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    if isinstance(allowed, int) and isinstance(value, float):
        # kube-apiserver converts to the type of the allowed value before it compares.
        return int(value) == allowed
    return bool(value == allowed)


def _check_enum(schema: Schema, value: Any, path: str, errors: _Errors) -> None:
    allowed = schema.enum or ()
    if any(_matches(value, item) for item in allowed):
        return
    names = [item if isinstance(item, str) else field_errors.render_value(item) for item in allowed]
    text = f"{path} in body should be one of [{' '.join(names)}]"
    errors.setdefault(text, field_errors.not_supported(path or "<nil>", value, names))


def _check_list(schema: Schema, value: list[Any], path: str, errors: _Errors, old: Any) -> int:
    matches = 2
    if schema.items is not None:
        before = correlate(schema, old) if old is not _ABSENT else None
        for index, item in enumerate(value):
            previous = _ABSENT if before is None else before(item, _ABSENT)
            matches += _check(schema.items, item, f"{path}[{index}]", errors, previous)
    size = len(value)
    if schema.min_items is not None and size < schema.min_items:
        text = f"{path} in body should have at least {schema.min_items} items"
        _add(errors, field_errors.INVALID, path, size, text)
    if schema.max_items is not None and size > schema.max_items:
        text = f"{path} in body should have at most {schema.max_items} items"
        errors.setdefault(text, field_errors.too_many(path or "<nil>", size, schema.max_items))
    if schema.unique_items and any(item in value[:index] for index, item in enumerate(value)):
        _add(errors, field_errors.INVALID, path, "", f"{path} in body shouldn't contain duplicates")
    return matches


def _check_object(schema: Schema, value: dict[str, Any], path: str, errors: _Errors, old: Any) -> int:
    matches = 1
    size = len(value)
    if schema.min_properties is not None and size < schema.min_properties:
        text = f"{path} in body should have at least {schema.min_properties} properties"
        _add(errors, field_errors.INVALID, path, size, text)
    if schema.max_properties is not None and size > schema.max_properties:
        text = f"{path} in body should have at most {schema.max_properties} properties"
        errors.setdefault(text, field_errors.too_many(path or "<nil>", size, schema.max_properties))
    before = old if isinstance(old, dict) else None
    properties, additional = schema.properties, schema.additional
    for key, item in value.items():
        named = properties.get(key)
        child = additional if named is None else named
        if child is None:
            continue
        if child.free_text and type(item) is str:
            matches += _FREE_TEXT_CHECKS
            continue
        name = key if named is not None and not path else f"{path}.{key}"
        previous = _ABSENT if before is None else before.get(key, _ABSENT)
        matches += _check(child, item, name, errors, previous)
    for key in schema.required:
        if key not in value:
            name = f"{path}.{key}"
            errors.setdefault(f"{name} in body is required", field_errors.required(name.removeprefix(".")))
    return matches


def _check_branches(schema: Schema, value: Any, path: str, errors: _Errors, old: Any) -> int:
    matches = 0
    shown = go_format.quote(path)
    if schema.any_of:
        valid, best, count = _try_branches(schema.any_of, value, path, old, stop_at_first=True)
        if not valid:
            _add_plain(errors, f"{shown} must validate at least one schema (anyOf)")
        matches += count
        _merge(errors, best)
    if schema.one_of:
        valid, best, count = _try_branches(schema.one_of, value, path, old, stop_at_first=False)
        if valid != 1:
            reason = f"Found {valid} valid alternatives" if valid else "Found none valid"
            _add_plain(errors, f"{shown} must validate one and only one schema (oneOf). {reason}")
            _merge(errors, best)
        matches += count
    if schema.all_of:
        valid = 0
        for branch in schema.all_of:
            branch_errors: _Errors = {}
            matches += _check(branch, value, path, branch_errors)
            valid += not branch_errors
            _merge(errors, branch_errors)
        if valid != len(schema.all_of):
            none = "" if valid else ". None validated"
            _add_plain(errors, f"{shown} must validate all the schemas (allOf){none}")
    if schema.not_ is not None:
        rejections: _Errors = {}
        _check(schema.not_, value, path, rejections)
        if not rejections:
            _add_plain(errors, f"{shown} must not validate the schema (not)")
    return matches


def _try_branches(
    branches: tuple[Schema, ...], value: Any, path: str, old: Any, *, stop_at_first: bool
) -> tuple[int, _Errors, int]:
    """Return how many branches are valid, the errors of the best one if none is, and its match count."""
    valid = count = 0
    best: _Errors = {}
    for branch in branches:
        errors: _Errors = {}
        # Ratcheting does not apply to a branch as a whole, only to the fields below it.
        matches = _check(branch, value, path, errors)
        if not errors:
            if not valid:
                best, count = {}, matches
            valid += 1
            if stop_at_first:
                break
        elif not valid and (not best or matches > count):
            best, count = errors, matches
    return valid, best, count


def _merge(errors: _Errors, more: _Errors) -> None:
    for text, error in more.items():
        errors.setdefault(text, error)


def _add_plain(errors: _Errors, text: str) -> None:
    errors.setdefault(text, field_errors.invalid("<nil>", "", text))

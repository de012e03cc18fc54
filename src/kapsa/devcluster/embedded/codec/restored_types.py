"""Typed decoding of a strategic merge patch's result, which the real server converts from maps, not from JSON.

The conversion is more lenient than encoding/json, wraps integers, and has its own errors.
"""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.codec.go_types import DecodingError, decode_special, zero_value
from kapsa.schemas.go_format import format_float
from kapsa.schemas.schema import RAW_EXTENSION, Schema

__all__ = ["print_as_go", "restore_types"]

Object = dict[str, Any]
_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}


def restore_types(schema: Schema, obj: Object) -> None:
    """Check an object of a built-in kind; numbers are wrapped to the width of their fields.

    Raises DecodingError for the first value that does not fit.
    """
    for name, value in obj.items():
        child = schema.properties.get(name)
        if child is not None and value is not None and name not in ("apiVersion", "kind", "managedFields"):
            obj[name] = _restore(child, value)


def _restore(schema: Schema, value: Any) -> Any:
    if schema.format in ("quantity", "date-time") or schema.int_or_string:
        return decode_special(schema, value)
    match schema.type:
        case "string" if schema.format == "byte":
            return _bytes(schema, value)
        case "string" | "integer" | "number" | "boolean":
            return _scalar(schema, value)
        case "array":
            if not isinstance(value, list):
                raise DecodingError(f"cannot restore slice from {_KINDS[type(value)]}")
            return [_element(schema.items, item) for item in value]
        case "object" if schema.name != RAW_EXTENSION:
            return _object(schema, value)
    return value


def _object(schema: Schema, value: Any) -> Any:
    is_map = not schema.properties and schema.additional is not None
    if not isinstance(value, dict):
        what = "map from" if is_map else "struct from:"
        raise DecodingError(f"cannot restore {what} {_KINDS[type(value)]}")
    if is_map:
        return {key: _element(schema.additional, item) for key, item in value.items()}
    restore_types(schema, value)
    return value


def _element(schema: Schema | None, value: Any) -> Any:
    if schema is None:
        return value
    return zero_value(schema) if value is None else _restore(schema, value)


def _bytes(schema: Schema, value: Any) -> Any:
    if not isinstance(value, str):
        raise DecodingError(f"cannot restore slice from {_KINDS[type(value)]}")
    try:
        return decode_special(schema, value)
    except DecodingError as error:
        raise DecodingError(f"error decoding from json: {error}") from None


def _scalar(schema: Schema, value: Any) -> Any:
    expected = {"string": str, "integer": int, "number": float, "boolean": bool}[schema.type]
    given, name = type(value), _name(schema)
    if given is expected:
        return _wrapped(schema, value) if given is int else value
    if expected is float and given is int:
        return value
    if expected is int and given is float and value.is_integer():
        return _wrapped(schema, int(value))
    # Go could convert an integer to a string and a float to an integer; the real server rejects both here.
    if (expected, given) in ((str, int), (int, float)):
        raise DecodingError(f"cannot convert {_KINDS[given]} to {name}")
    raise DecodingError(f"unrecognized type: {name}")


def _name(schema: Schema) -> str:
    if schema.type == "integer":
        return "int32" if schema.format == "int32" else "int64"
    return {"number": "float64", "boolean": "bool"}.get(schema.type, schema.type)


def _wrapped(schema: Schema, value: int) -> int:
    half = 1 << (31 if schema.format == "int32" else 63)
    return (value + half) % (2 * half) - half


def print_as_go(value: Any) -> str:
    """Return a decoded value as Go's %v prints it."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{print_as_go(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(print_as_go, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    return format_float(value) if isinstance(value, float) else str(value)

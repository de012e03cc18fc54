"""Typed decoding with the rules and errors of Go's encoding/json.

The fields of a built-in kind have Go types, so the first value of another type fails the request before validation.
A custom resource is free-form except for its metadata.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.go_json import json_type
from kapsa.schemas import quantities
from kapsa.schemas.go_format import format_float, quote
from kapsa.schemas.schema import OBJECT_META, RAW_EXTENSION, Schema

__all__ = ["DecodingError", "check_metadata", "check_types", "decode_special", "zero_value"]

Object = dict[str, Any]


class DecodingError(Exception):
    """A value that does not fit its Go type."""


def check_types(schema: Schema, obj: Object, info: ResourceInfo) -> None:
    """Check an object of a built-in kind; nulls in its maps and lists become zero values, as in Go.

    Raises DecodingError for the first value that does not fit.
    """
    _struct(schema, obj, info.kind, "", skip=("apiVersion", "kind"))


def check_metadata(obj: Object) -> None:
    """Check the metadata of a custom resource. Raises DecodingError for the first value that does not fit."""
    metadata = obj.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise DecodingError(
            f"json: cannot unmarshal {json_type(metadata)} into Go value of type v1.ObjectMeta"
        )
    _struct(OBJECT_META, metadata, "ObjectMeta", "")


def _struct(schema: Schema, value: Object, struct: str, path: str, skip: tuple[str, ...] = ()) -> None:
    for name, item in value.items():
        child = schema.properties.get(name)
        if child is None or item is None or name in skip:
            continue
        where = f"{path}.{name}" if path else name
        if name == "managedFields" and type(item) is list:
            # The content of the entries is checked where they are decoded.
            for entry in item:
                _expect(entry is None or type(entry) is dict, child.items or child, entry, struct, where)
            continue
        value[name] = _value(child, item, struct, where, name)


def _value(schema: Schema, value: Any, struct: str, path: str, field: str) -> Any:
    """Return the value as its Go type holds it."""
    if schema.format in ("quantity", "date-time") or schema.int_or_string:
        return decode_special(schema, value)
    match schema.type:
        case "string":
            _expect(isinstance(value, str), schema, value, struct, path)
            return decode_special(schema, value)
        case "integer":
            return _integer(schema, value, struct, path)
        case "number":
            _expect(
                isinstance(value, int | float) and not isinstance(value, bool), schema, value, struct, path
            )
        case "boolean":
            _expect(isinstance(value, bool), schema, value, struct, path)
        case "array":
            _expect(isinstance(value, list), schema, value, struct, path)
            return _list(schema, value, struct, path, field)
        case "object" if schema.name != RAW_EXTENSION:
            _expect(isinstance(value, dict), schema, value, struct, path)
            return _object(schema, value, struct, path, field)
    return value


def _expect(fits: bool, schema: Schema, value: Any, struct: str, path: str) -> None:
    if not fits:
        raise DecodingError(
            f"json: cannot unmarshal {_shown(value)} into Go struct field {struct}.{path} of type {_go_type(schema)}"
        )


def _shown(value: Any) -> str:
    return json_type(value)


def decode_special(schema: Schema, value: Any) -> Any:
    """Decode a value of a type with its own decoder, whose errors have no path."""
    if schema.format == "quantity":
        return _quantity(value)
    if schema.int_or_string:
        return _int_or_string(value)
    if schema.format == "date-time":
        return _time(value)
    if schema.format == "byte":
        _check_base64(value)
    return value


def _integer(schema: Schema, value: Any, struct: str, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _expect(False, schema, value, struct, path)
    bits = 32 if schema.format == "int32" else 64
    if isinstance(value, float) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        shown = format_float(value) if isinstance(value, float) else value
        raise DecodingError(
            f"json: cannot unmarshal number {shown} into Go struct field {struct}.{path} of type {_go_type(schema)}"
        )
    return value


def _list(schema: Schema, value: list[Any], struct: str, path: str, field: str) -> list[Any]:
    items = schema.items
    if items is None:
        return value
    return [zero_value(items) if item is None else _value(items, item, struct, path, field) for item in value]


def _object(schema: Schema, value: Object, struct: str, path: str, field: str) -> Object:
    if schema.properties:
        _struct(schema, value, _struct_name(schema, field), path)
    elif schema.additional is not None:
        inner = schema.additional
        for key, item in value.items():
            value[key] = zero_value(inner) if item is None else _value(inner, item, struct, path, field)
    return value


def zero_value(schema: Schema) -> Any:
    """Return the value that null becomes in a Go map or slice."""
    if schema.format == "quantity":
        return "0"
    return {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}.get(schema.type)


def _struct_name(schema: Schema, field: str) -> str:
    if schema is OBJECT_META:
        return "ObjectMeta"
    return schema.name.rpartition(".")[2] or field


def _go_type(schema: Schema) -> str:
    match schema.type:
        case "string":
            return "[]uint8" if schema.format == "byte" else "string"
        case "integer":
            return "int32" if schema.format == "int32" else "int64"
        case "number":
            return "float64"
        case "boolean":
            return "bool"
        case "array":
            return "[]" + (_go_type(schema.items) if schema.items is not None else "interface {}")
    if schema.additional is not None and not schema.properties:
        return f"map[string]{_go_type(schema.additional)}"
    if schema.format == "quantity":
        return "resource.Quantity"
    package, _, name = schema.name.rpartition(".")
    return f"{package.rpartition('.')[2]}.{name}" if name else "v1.ObjectMeta"


def _quantity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodingError(quantities.MESSAGE)
    try:
        quantities.parse(value)
    except ValueError as error:
        raise DecodingError(str(error)) from None
    return value


def _int_or_string(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        shown = f"number {format_float(value)}" if isinstance(value, float) else json_type(value)
        raise DecodingError(f"json: cannot unmarshal {shown} into Go value of type int32")
    if isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
        raise DecodingError(f"json: cannot unmarshal number {value} into Go value of type int32")
    return value


_ALPHABET = re.compile(r"[A-Za-z0-9+/]*")


def _check_base64(text: str) -> None:
    compact = text.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError):
        matched = _ALPHABET.match(text)
        bad = matched.end() if matched else 0
        if bad == len(text):
            # Only the length is wrong: Go points at the last group of four.
            bad = len(text) - len(text) % 4
        raise DecodingError(f"illegal base64 data at input byte {bad}") from None


_LAYOUT = "2006-01-02T15:04:05Z07:00"
_STEPS = (
    (r"\d{4}", "2006"),
    ("-", "-"),
    (r"\d{2}", "01"),
    ("-", "-"),
    (r"\d{2}", "02"),
    ("T", "T"),
    (r"\d{2}", "15"),
    (":", ":"),
    (r"\d{2}", "04"),
    (":", ":"),
    (r"\d{2}(?:[.,]\d+)?", "05"),
    (r"Z|[+-]\d{2}:\d{2}", "Z07:00"),
)


_is_time = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:\d{2})").fullmatch


def _time(value: Any) -> Any:
    """Check a metav1.Time: RFC 3339 or empty."""
    if not isinstance(value, str):
        raise DecodingError(f"json: cannot unmarshal {json_type(value)} into Go value of type string")
    if not value or _is_time(value):
        return value
    rest = value
    for pattern, element in _STEPS:
        matched = re.match(pattern, rest)
        if matched is None:
            raise DecodingError(
                f"parsing time {quote(value)} as {quote(_LAYOUT)}: cannot parse {quote(rest)} as {quote(element)}"
            )
        rest = rest[matched.end() :]
    if rest:
        raise DecodingError(f"parsing time {quote(value)}: extra text: {quote(rest)}")
    return value

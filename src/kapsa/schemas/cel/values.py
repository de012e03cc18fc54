"""Conversion of JSON values for CEL: times, durations, integers that are doubles, escaped field names."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from kapsa.schemas.schema import Schema

__all__ = ["escape", "value_of"]

Convert = Callable[[Any], Any]
_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL = re.compile(r"__|[./-]")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}

_plans: WeakKeyDictionary[Schema, Convert | None] = WeakKeyDictionary()


def escape(name: str) -> str:
    """Return a field's name as an identifier: `foo__dash__bar` for `foo-bar`."""
    if name in _RESERVED:
        return f"__{name}__"
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], name)


def value_of(schema: Schema, value: Any) -> Any:
    """Convert `value` for CEL. Return the same object if nothing has to be converted, the common case."""
    convert = _plan(schema)
    return value if convert is None or value is None else convert(value)


def _plan(schema: Schema) -> Convert | None:
    """Return the conversion for values of a schema, None if they need none."""
    if schema in _plans:
        return _plans[schema]
    _plans[schema] = plan = _make_plan(schema)
    return plan


def _make_plan(schema: Schema) -> Convert | None:
    if schema.type == "string":
        return _STRINGS.get(schema.format)
    if schema.type == "number":
        return lambda value: float(value) if type(value) is int else value
    if schema.items is not None:
        item = _plan(schema.items)
        return None if item is None else lambda value: _convert_list(item, value)
    if schema.properties:
        names = {name: escape(name) for name in schema.properties}
        plans = {name: _plan(child) for name, child in schema.properties.items()}
        changed = {
            name: (names[name], plans[name])
            for name in names
            if names[name] != name or plans[name] is not None
        }
        return None if not changed else lambda value: _convert_object(changed, value)
    if schema.additional is not None:
        inner = _plan(schema.additional)
        return None if inner is None else lambda value: _convert_map(inner, value)
    return None


def _convert_list(item: Convert, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [None if entry is None else item(entry) for entry in value]


def _convert_map(inner: Convert, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: None if entry is None else inner(entry) for key, entry in value.items()}


def _convert_object(changed: dict[str, tuple[str, Convert | None]], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    converted = {}
    for key, entry in value.items():
        name, convert = changed.get(key, (key, None))
        converted[name] = entry if convert is None or entry is None else convert(entry)
    return converted


def _time(value: Any) -> Any:
    # The binding accepts times inside objects only as protocol buffers.
    from google.protobuf.timestamp_pb2 import Timestamp

    timestamp = Timestamp()
    try:
        timestamp.FromJsonString(value)
    except (TypeError, ValueError, AttributeError):
        return value
    return timestamp


def _date(value: Any) -> Any:
    return _time(f"{value}T00:00:00Z") if isinstance(value, str) else value


def _duration(value: Any) -> Any:
    from google.protobuf.duration_pb2 import Duration

    if not isinstance(value, str):
        return value
    parts = _DURATION_PART.findall(value)
    nanoseconds = round(sum(float(number) * _NANOSECONDS[unit] for number, unit in parts))
    duration = Duration()
    duration.FromNanoseconds(-nanoseconds if value.startswith("-") else nanoseconds)
    return duration


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        return value


_STRINGS: dict[str, Convert] = {"date-time": _time, "date": _date, "duration": _duration, "byte": _bytes}

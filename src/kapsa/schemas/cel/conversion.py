"""Conversion of JSON values for rules: times, durations, bytes, integers that are doubles, typed lists."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from kapsa.schemas.cel.values import CelDuration, MapList, SetList, Timestamp
from kapsa.schemas.schema import Schema

__all__ = ["value_of"]

Convert = Callable[[Any], Any]
_WORD_PART = re.compile(r"(\d+)\s*([a-zµμ]+)\s*")
_WORD_UNITS = {"n": 1, "u": 10**3, "µ": 10**3, "μ": 10**3, "s": 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_WORD_UNITS |= {"w": 7 * 86400 * 10**9}

_plans: WeakKeyDictionary[Schema, Convert | None] = WeakKeyDictionary()


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
    if schema.type == "array":
        return _list_plan(schema)
    if schema.properties:
        plans = {name: _plan(child) for name, child in schema.properties.items()}
        changed = {name: plan for name, plan in plans.items() if plan is not None}
        return None if not changed else lambda value: _convert_object(changed, value)
    if schema.additional is not None:
        inner = _plan(schema.additional)
        return None if inner is None else lambda value: _convert_map(inner, value)
    return None


def _list_plan(schema: Schema) -> Convert | None:
    item = None if schema.items is None else _plan(schema.items)
    if schema.list_type == "set":
        return lambda value: SetList(_convert_list(item, value)) if isinstance(value, list) else value
    if schema.list_type == "map":
        keys = schema.map_keys
        return lambda value: MapList(_convert_list(item, value), keys) if isinstance(value, list) else value
    return None if item is None else lambda value: _convert_list(item, value)


def _convert_list(item: Convert | None, value: Any) -> Any:
    if item is None or not isinstance(value, list):
        return value
    return [None if entry is None else item(entry) for entry in value]


def _convert_map(inner: Convert, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: None if entry is None else inner(entry) for key, entry in value.items()}


def _convert_object(changed: dict[str, Convert], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    converted = dict(value)
    for key, convert in changed.items():
        entry = converted.get(key)
        if entry is not None:
            converted[key] = convert(entry)
    return converted


def _time(value: Any) -> Any:
    try:
        return Timestamp.parse(value)
    except (TypeError, ValueError):
        return value


def _date(value: Any) -> Any:
    return _time(f"{value}T00:00:00Z") if isinstance(value, str) else value


def _duration(value: Any) -> Any:
    try:
        return CelDuration.parse(value)
    except ValueError:
        return _duration_in_words(value)
    except (TypeError, AttributeError):
        return value


def _duration_in_words(text: str) -> Any:
    """Parse `3 days 2 hours`, which the format allows next to Go's notation."""
    total = 0
    for number, unit in _WORD_PART.findall(text):
        if unit.startswith("mi") and not unit.startswith(("mil", "mic")):
            factor = 60 * 10**9
        elif unit.startswith("mic"):
            factor = 10**3
        elif unit in ("ms",) or unit.startswith("mil"):
            factor = 10**6
        else:
            factor = 60 * 10**9 if unit == "m" else _WORD_UNITS.get(unit[0], 0)
        total += int(number) * factor
    return CelDuration(total)


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        return value


_STRINGS: dict[str, Convert] = {"date-time": _time, "date": _date, "duration": _duration, "byte": _bytes}

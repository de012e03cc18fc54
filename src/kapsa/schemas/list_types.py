"""Lists of type set and map: uniqueness of their entries, and the old entry that belongs to a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.schemas import field_errors
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.schema import Schema


def validate_lists(schema: Schema, obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for each duplicate in lists of type set or map."""
    errors: list[FieldError] = []
    _walk(schema, obj, "", errors)
    return errors


def correlate(schema: Schema, old: Any) -> Callable[[Any, Any], Any] | None:
    """Return a lookup from a new entry to the old one with the same keys, None if entries have no keys."""
    if schema.list_type != "map" or not isinstance(old, list):
        return None
    by_key = {_key(schema, item): item for item in reversed(old) if isinstance(item, dict)}

    def find(item: Any, absent: Any) -> Any:
        return by_key.get(_key(schema, item), absent) if isinstance(item, dict) else absent

    return find


def _key(schema: Schema, item: dict[str, Any]) -> bytes:
    parts = []
    for name in schema.map_keys:
        value = item.get(name)
        if value is None and schema.items is not None:
            field = schema.items.properties.get(name)
            default = field.default if field is not None else msgspec.UNSET
            value = None if default is msgspec.UNSET else default
        parts.append(value)
    return msgspec.json.encode(parts, order="deterministic")


def _walk(schema: Schema, value: Any, path: str, errors: list[FieldError]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(item, (dict, list)):
                continue
            child = schema.properties.get(key)
            if child is not None:
                _walk(child, item, f"{path}.{key}" if path else key, errors)
            elif schema.additional is not None:
                _walk(schema.additional, item, f"{path}[{key}]", errors)
    elif isinstance(value, list):
        if schema.list_type == "set":
            _check_set(value, path, errors)
        elif schema.list_type == "map":
            _check_map(schema, value, path, errors)
        if schema.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    _walk(schema.items, item, f"{path}[{index}]", errors)


def _second_appearances(values: list[Any]) -> list[int]:
    """Return the indexes where a value appears for the second time; further duplicates are not reported."""
    times: dict[bytes, int] = {}
    indexes = []
    for index, value in enumerate(values):
        key = msgspec.json.encode(value, order="deterministic")
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            indexes.append(index)
    return indexes


def _check_set(value: list[Any], path: str, errors: list[FieldError]) -> None:
    twice = _second_appearances(value) if len(value) > 1 else []
    errors += [field_errors.duplicate(f"{path}[{index}]", value[index]) for index in twice]


def _check_map(schema: Schema, value: list[Any], path: str, errors: list[FieldError]) -> None:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            text = "must be an object for an array of list-type map"
            errors.append(field_errors.invalid(f"{path}[{index}]", item, text))
            return
    if len(value) <= 1:
        return
    keys = [{name: item[name] for name in schema.map_keys if item and name in item} for item in value]
    errors += [field_errors.duplicate(f"{path}[{index}]", keys[index]) for index in _second_appearances(keys)]

"""Defaulting: the schema's values for fields that an object leaves out."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kapsa.schemas.schema import Schema

_SCALARS = (str, int, float, bool)
_has_defaults: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


def apply_defaults(schema: Schema | None, obj: dict[str, Any]) -> dict[str, Any]:
    """Fill `obj`, in place, with the schema's defaults and return it.

    A null where the schema is not nullable is dropped first, so that the default (if any) applies.
    """
    if schema is not None:
        drop_nulls(schema, obj)
        fill_defaults(schema, obj)
    return obj


def fill_defaults(schema: Schema, obj: dict[str, Any]) -> None:
    """Fill `obj`, in place, with the schema's defaults; a null without a default stays."""
    _fill(schema, obj)


def drop_nulls(schema: Schema, value: Any) -> None:
    """Remove nulls of non-nullable properties that have no default; they count as absent."""
    if type(value) is dict:
        properties, additional = schema.properties, schema.additional
        dropped: list[str] = []
        for key, item in value.items():
            if item is None:
                child = properties.get(key, additional)
                if child is not None and not child.nullable and child.default is msgspec.UNSET:
                    dropped.append(key)
            elif type(item) is dict or type(item) is list:
                child = properties.get(key, additional)
                if child is not None:
                    drop_nulls(child, item)
        for key in dropped:
            del value[key]
    elif type(value) is list and schema.items is not None:
        for item in value:
            if type(item) is dict or type(item) is list:
                drop_nulls(schema.items, item)


def has_defaults(schema: Schema) -> bool:
    """Return whether any node below `schema` has a default; recursive kinds are allowed."""
    cached = _has_defaults.get(schema)
    if cached is None:
        _has_defaults[schema] = cached = _search_defaults(schema, set())
    return cached


def _search_defaults(schema: Schema, seen: set[int]) -> bool:
    if id(schema) in seen:
        return False
    seen.add(id(schema))
    children = [*schema.properties.values()]
    children += [child for child in (schema.items, schema.additional) if child is not None]
    return any(child.default is not msgspec.UNSET or _search_defaults(child, seen) for child in children)


def _fill(schema: Schema, value: Any) -> None:
    if not has_defaults(schema):
        return
    if type(value) is dict:
        _fill_object(schema, value)
    elif type(value) is list and schema.items is not None:
        items = schema.items
        for index, item in enumerate(value):
            if item is None and not items.nullable and items.default is not msgspec.UNSET:
                value[index] = item = _copy(items.default)
            _fill(items, item)


def _fill_object(schema: Schema, value: dict[str, Any]) -> None:
    properties, additional = schema.properties, schema.additional
    for key, child in properties.items():
        if child.default is not msgspec.UNSET and (
            key not in value or (value[key] is None and not child.nullable)
        ):
            value[key] = _copy(child.default)
    for key, item in value.items():
        child_schema = properties.get(key, additional)
        if child_schema is None:
            continue
        if item is None and not child_schema.nullable and child_schema.default is not msgspec.UNSET:
            value[key] = item = _copy(child_schema.default)
        _fill(child_schema, item)


def _copy(value: Any) -> Any:
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value

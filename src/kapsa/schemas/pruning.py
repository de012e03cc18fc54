"""Pruning: fields that the schema does not know are dropped, and can be named first."""

from __future__ import annotations

from typing import Any

from kapsa.schemas.schema import Schema

_NOTHING = Schema()


def prune(schema: Schema | None, obj: dict[str, Any]) -> dict[str, Any]:
    """Drop from `obj`, in place, what `schema` does not specify; returns `obj`."""
    if schema is not None:
        _walk(schema, obj, "", None)
    return obj


def unknown_fields(schema: Schema | None, obj: dict[str, Any]) -> list[str]:
    """The paths pruning would drop, in the wording of strict decoding: `unknown field "spec.foo"`."""
    if schema is None:
        return []
    found: list[str] = []
    _walk(schema, obj, "", found)
    return [f'unknown field "{path}"' for path in sorted(found)]


def _walk(schema: Schema, value: Any, path: str, found: list[str] | None) -> None:
    """Visit `value`; with `found` unknown paths are recorded and kept, without it they are removed."""
    if schema.preserve_unknown:
        _walk_preserved(schema, value, path, found)
    elif type(value) is dict:
        _walk_object(schema, value, path, found)
    elif type(value) is list:
        items = schema.items or _NOTHING
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                _walk(items, item, f"{path}[{index}]" if found is not None else path, found)


def _walk_preserved(schema: Schema, value: Any, path: str, found: list[str] | None) -> None:
    """Below x-kubernetes-preserve-unknown-fields only what the schema specifies is pruned again."""
    if type(value) is dict:
        for key, item in value.items():
            child = schema.properties.get(key, schema.additional)
            if child is not None and (type(item) is dict or type(item) is list):
                _walk(child, item, _join(path, key) if found is not None else path, found)
    elif type(value) is list and schema.items is not None:
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                _walk_preserved(schema.items, item, f"{path}[{index}]" if found is not None else path, found)


def _walk_object(schema: Schema, value: dict[str, Any], path: str, found: list[str] | None) -> None:
    properties, additional = schema.properties, schema.additional
    dropped: list[str] | None = None
    for key, item in value.items():
        child = properties.get(key, additional)
        if child is None:
            if found is not None:
                found.append(_join(path, key))
            elif dropped is None:
                dropped = [key]
            else:
                dropped.append(key)
        elif type(item) is dict or type(item) is list:
            _walk(child, item, _join(path, key) if found is not None else path, found)
    for key in dropped or ():
        del value[key]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

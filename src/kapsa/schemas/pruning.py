"""Pruning: removal of the fields that a schema does not specify, or a report of them."""

from __future__ import annotations

from typing import Any

from kapsa.schemas.schema import Schema

_NOTHING = Schema()


def prune(schema: Schema | None, obj: dict[str, Any]) -> dict[str, Any]:
    """Drop from `obj`, in place, the fields that `schema` does not specify, and return it."""
    if schema is not None:
        _walk(schema, obj, "", None)
    return obj


def unknown_fields(schema: Schema | None, obj: dict[str, Any]) -> list[str]:
    """Return the fields that pruning would drop, in strict decoding's words: `unknown field "spec.foo"`."""
    if schema is None:
        return []
    unknown: list[str] = []
    _walk(schema, obj, "", unknown)
    return [f'unknown field "{path}"' for path in sorted(unknown)]


def _walk(schema: Schema, value: Any, path: str, unknown: list[str] | None) -> None:
    """Visit `value`: append the paths of unknown fields to `unknown`, or remove the fields if it is None."""
    if schema.preserve_unknown:
        _walk_preserved(schema, value, path, unknown)
    elif type(value) is dict:
        _walk_object(schema, value, path, unknown)
    elif type(value) is list:
        items = schema.items or _NOTHING
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                _walk(items, item, f"{path}[{index}]" if unknown is not None else path, unknown)


def _walk_preserved(schema: Schema, value: Any, path: str, unknown: list[str] | None) -> None:
    """Visit a value with x-kubernetes-preserve-unknown-fields: pruning continues in specified fields only."""
    if type(value) is dict:
        for key, item in value.items():
            child = schema.properties.get(key, schema.additional)
            if child is not None and (type(item) is dict or type(item) is list):
                _walk(child, item, _join(path, key) if unknown is not None else path, unknown)
    elif type(value) is list and schema.items is not None:
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                _walk_preserved(
                    schema.items, item, f"{path}[{index}]" if unknown is not None else path, unknown
                )


def _walk_object(schema: Schema, value: dict[str, Any], path: str, unknown: list[str] | None) -> None:
    properties, additional = schema.properties, schema.additional
    dropped: list[str] | None = None
    for key, item in value.items():
        child = properties.get(key, additional)
        if child is None:
            if unknown is not None:
                unknown.append(_join(path, key))
            elif dropped is None:
                dropped = [key]
            else:
                dropped.append(key)
        elif type(item) is dict or type(item) is list:
            _walk(child, item, _join(path, key) if unknown is not None else path, unknown)
    for key in dropped or ():
        del value[key]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

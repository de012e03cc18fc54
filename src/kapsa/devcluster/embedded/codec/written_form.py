"""Built-in objects as the real server's Go structs write them.

Some fields are written although they were not set (`status: {}`, a container's `resources: {}`, a condition's times),
others are omitted when empty (`data: {}`). Replies depend on it, and so does field ownership: a creator owns the
fields of a struct that is always written, but not the struct. tools/controlplane/structs generates the data file.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kapsa.schemas.schema import Schema, walk

__all__ = ["store_as_go", "write_as_go", "zero_object"]

_DATA_FILE = Path(__file__).parents[1] / "data" / "structs-1.36.json.gz"


class _Struct(msgspec.Struct, frozen=True):
    """The fields that one struct always or never writes when they are empty."""

    always: dict[str, Any] = {}
    """Fields that are written even when unset, with their value."""
    omitted: frozenset[str] = frozenset()
    """Fields that are omitted when they are empty."""


@cache
def _structs() -> dict[str, _Struct]:
    packed = _DATA_FILE.read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, _Struct])


_PLAIN = _Struct()
_EMPTY_MATTERS = frozenset({"managedFields", "policies"})
"""Fields whose empty value has a meaning: for field managers, and for an autoscaler's policies."""


def zero_object(schema: Schema | None, api_version: str, kind: str) -> dict[str, Any]:
    """Return a new, empty object of a kind. A custom resource has only its type."""
    obj: dict[str, Any] = {"apiVersion": api_version, "kind": kind}
    write_as_go(schema, obj)
    return obj


def write_as_go(schema: Schema | None, obj: dict[str, Any]) -> None:
    """Change a built-in object in place into the form that the real server returns."""
    if schema is not None and schema.name:
        _write(schema, obj)


def _write(schema: Schema, value: Any) -> None:
    if type(value) is list:
        items = schema.items
        if items is not None:
            for item in value:
                if type(item) is dict:
                    _write(items, item)
    elif schema.additional is not None:
        for item in value.values():
            if type(item) is dict or type(item) is list:
                _write(schema.additional, item)
    elif schema.properties:
        _write_struct(schema, value)


def _write_struct(schema: Schema, value: dict[str, Any]) -> None:
    properties, struct = schema.properties, _structs().get(schema.name, _PLAIN)
    for name, zero in struct.always.items():
        if name in properties and value.get(name) is None:
            value[name] = {} if zero == {} else zero
    for name in [name for name, child in value.items() if not child and _vanishes(name, child, struct)]:
        del value[name]
    for name, child in value.items():
        if (type(child) is dict or type(child) is list) and (below := properties.get(name)) is not None:
            _write(below, child)


def _vanishes(name: str, empty: Any, struct: _Struct) -> bool:
    if empty is None:
        return name not in struct.always
    return name in struct.omitted and name not in _EMPTY_MATTERS


def store_as_go(schema: Schema | None, obj: dict[str, Any]) -> None:
    """Change a built-in object in place as the real server's storage does, where an empty list becomes null."""
    if schema is not None and _loses(schema):
        _store(schema, obj)


def _store(schema: Schema, value: Any) -> None:
    if type(value) is list:
        for item in value:
            if type(item) is dict:
                _store(schema.items, item)  # type: ignore[arg-type]
        return
    always = _structs().get(schema.name, _PLAIN).always
    for name, below in schema.properties.items():
        child = value.get(name)
        if child == [] and name in always:
            value[name] = None
        elif child and (type(child) is dict or type(child) is list) and _loses(below):
            _store(below, child)


@cache
def _loses(schema: Schema) -> bool:
    """Return whether the schema contains a list that is written even when it is empty."""
    return any(
        zero is None and name in node.properties and node.properties[name].type == "array"
        for node in walk(schema)
        for name, zero in _structs().get(node.name, _PLAIN).always.items()
    )

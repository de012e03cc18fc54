"""Built-in objects as the real server's Go structs write them.

Some fields are there although nobody set them (`status: {}`, a container's `resources: {}`, a condition's times),
others vanish when they are empty (`data: {}`). What a client reads depends on it, and so does who owns what: a
creator owns what is in a struct that is always written, not the struct. The data file is made by
tools/controlplane/structs.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kapsa.devcluster.embedded.schemas.schema import Schema

__all__ = ["write_as_go", "zero_object"]

_DATA_FILE = "structs-1.36.json.gz"


class _Struct(msgspec.Struct, frozen=True):
    """How one struct is written."""

    always: dict[str, Any] = {}
    """Fields that are written even when unset, as they are then."""
    omitted: frozenset[str] = frozenset()
    """Fields that are not written when they are empty."""


@cache
def _structs() -> dict[str, _Struct]:
    packed = files("kapsa.devcluster.embedded").joinpath("data", _DATA_FILE).read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, _Struct])


_PLAIN = _Struct()
_MANAGED_FIELDS = "managedFields"
"""Left to those who track them: here, an empty list is not nothing."""


def zero_object(schema: Schema | None, api_version: str, kind: str) -> dict[str, Any]:
    """A new, empty object of a kind. A custom resource has nothing but its type."""
    obj: dict[str, Any] = {"apiVersion": api_version, "kind": kind}
    if schema is not None and schema.name:
        _write(schema, obj, nulls=True)
    return obj


def write_as_go(schema: Schema | None, obj: dict[str, Any]) -> None:
    """Bring a built-in object, in place, into the form the real server would store."""
    if schema is not None and schema.name:
        _write(schema, obj, nulls=False)


def _write(schema: Schema, value: Any, *, nulls: bool) -> None:
    if type(value) is list:
        items = schema.items
        if items is not None:
            for item in value:
                if type(item) is dict:
                    _write(items, item, nulls=nulls)
    elif schema.additional is not None:
        for item in value.values():
            if type(item) is dict or type(item) is list:
                _write(schema.additional, item, nulls=nulls)
    elif schema.properties:
        _write_struct(schema, value, nulls=nulls)


def _write_struct(schema: Schema, value: dict[str, Any], *, nulls: bool) -> None:
    properties, struct = schema.properties, _structs().get(schema.name, _PLAIN)
    for name, zero in struct.always.items():
        # An unset list or pointer is a null in Go too; only times are shown so here, the rest is noise.
        shown = zero is not None or nulls or (name in properties and properties[name].type == "string")
        if shown and name in properties and value.get(name) is None:
            value[name] = {} if zero == {} else zero
    for name in [name for name, child in value.items() if not child and _vanishes(name, child, struct)]:
        del value[name]
    for name, child in value.items():
        if (type(child) is dict or type(child) is list) and (below := properties.get(name)) is not None:
            _write(below, child, nulls=nulls)


def _vanishes(name: str, empty: Any, struct: _Struct) -> bool:
    if empty is None:
        return name not in struct.always
    return name in struct.omitted and name != _MANAGED_FIELDS

"""The merge rules of an object, derived from its schema: its leaves, and the lists that are sets or maps.

A schema describes the valid values; a shape describes how several managers share one. Where the schema
specifies nothing (free-form objects, preserved unknown fields) the shape is *deduced*: objects merge by
field, lists are atomic.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kapsa.devcluster.embedded.apply.fieldset import item_key, item_value
from kapsa.schemas.schema import RAW_EXTENSION, Schema

__all__ = ["DEDUCED", "Shape", "TypedError", "shape_of"]


class TypedError(ValueError):
    """A value that does not fit its shape. `errors` are pairs of a path and a message."""

    def __init__(self, *errors: tuple[str, str]) -> None:
        lines = [f"{path}: {message}" if path else message for path, message in errors]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines]))
        self.errors = errors


class Shape:
    """The merge rules of one field or item. It may accept several forms: a scalar, a list, a map."""

    __slots__ = (
        "_additional",
        "_fields",
        "_item",
        "_item_schema",
        "_key_defaults",
        "_preserve",
        "_properties",
        "deduced_map",
        "keys",
        "list_atomic",
        "map_atomic",
        "scalar",
        "settled",
        "takes_list",
        "takes_map",
    )

    def __init__(self, schema: Schema, preserve: bool) -> None:
        kind = schema.type
        untyped = kind == ""
        self.takes_map = untyped or kind == "object"
        self.takes_list = untyped or kind == "array"
        self.scalar = _scalar(schema)
        self.map_atomic = schema.map_type == "atomic"
        self.list_atomic, self.keys = _list_relation(schema)
        self._preserve = preserve or schema.preserve_unknown
        self._properties = schema.properties
        self._additional = schema.additional
        self._item_schema = schema.items
        self._fields: dict[str, Shape] = {}
        self._item: Shape | None = None
        self._key_defaults: dict[str, Any] | None = None
        self.settled: set[bytes] = set()
        """Encoded field sets that fit this shape; used on the shape of a whole object only."""
        self.deduced_map = not schema.properties and _is_deduced(schema)

    def field(self, name: str) -> Shape | None:
        """Return the shape of the value under `name`, None if the schema has no such field."""
        shape = self._fields.get(name)
        if shape is None:
            schema = self._properties.get(name, self._additional)
            if schema is not None:
                shape = _cached(schema, self._preserve)
            elif self._preserve or not self._properties:
                return DEDUCED
            else:
                return None
            # The keys of free maps are unbounded, and all share one shape.
            if name in self._properties:
                self._fields[name] = shape
        return shape

    def declares(self, name: str) -> bool:
        """Return whether `name` is a named field of a struct rather than a key of a map."""
        return name in self._properties

    @property
    def item(self) -> Shape:
        if self._item is None:
            self._item = ATOMIC if self._item_schema is None else _cached(self._item_schema, self._preserve)
        return self._item

    def form_of(self, value: Any) -> str:
        """Return the form of `value` (map, list, scalar), or the preferred one if it is not accepted."""
        kind = type(value)
        if kind is dict:
            if self.takes_map:
                return "map"
        elif kind is list:
            if self.takes_list:
                return "list"
        elif value is not None and self.scalar:
            return "scalar"
        if self.takes_map:
            return "map"
        return "scalar" if self.scalar else "list"

    def element_of(self, item: Any) -> str:
        """Return the path element of an item of this associative list."""
        if not self.keys:
            return _set_element(item)
        if item is None:
            raise TypedError(("", "associative list with keys may not have a null element"))
        if type(item) is not dict:
            raise TypedError(("", "associative list with keys may not have non-map elements"))
        present: dict[str, Any] = {}
        for key in self.keys:
            value = item.get(key, msgspec.UNSET)
            if value is msgspec.UNSET:
                value = self.key_defaults.get(key)
                if value is None:
                    continue
            present[key] = value
        if not present:
            names = " ".join(f'"{key}"' for key in self.keys)
            message = f"associative list with keys has an element that omits all key fields [{names}] (and doesn't have default values for any key fields)"
            raise TypedError(("", message))
        return item_key(present)

    @property
    def key_defaults(self) -> dict[str, Any]:
        """The defaults of key fields; an item without the field has the default as its key."""
        if self._key_defaults is None:
            properties = self._item_schema.properties if self._item_schema is not None else {}
            self._key_defaults = {
                key: properties[key].default
                for key in self.keys
                if key in properties and properties[key].default is not msgspec.UNSET
            }
        return self._key_defaults


def _set_element(item: Any) -> str:
    if type(item) is dict:
        raise TypedError(("", "associative list without keys has an element that's a map type"))
    if type(item) is list:
        raise TypedError(("", "not supported: associative list with lists as elements"))
    if item is None:
        raise TypedError(("", "associative list without keys has an element that's an explicit null"))
    return item_value(item)


def _scalar(schema: Schema) -> str:
    match schema.type:
        case "integer" | "number":
            return "numeric"
        case "boolean":
            return "boolean"
        case "string":
            return "string" if schema.format in ("", "byte") else "untyped"
        case "":
            return "untyped"
    return ""


def _list_relation(schema: Schema) -> tuple[bool, tuple[str, ...]]:
    """Return whether the list is atomic, and its keys sorted by name, as in path elements."""
    if schema.list_type == "map":
        return False, tuple(sorted(schema.map_keys))
    if schema.list_type:
        return schema.list_type != "set", ()
    if "merge" in schema.patch_strategy.split(","):
        return False, (schema.patch_merge_key,) if schema.patch_merge_key else ()
    return True, ()


def _is_deduced(schema: Schema) -> bool:
    additional = schema.additional
    return additional is None or _scalar(additional) == "untyped"


_SHAPES: dict[bool, WeakKeyDictionary[Schema, Shape]] = {
    False: WeakKeyDictionary(),
    True: WeakKeyDictionary(),
}


def _cached(schema: Schema, preserve: bool) -> Shape:
    if schema.name == RAW_EXTENSION:
        return ATOMIC
    shapes = _SHAPES[preserve]
    shape = shapes.get(schema)
    if shape is None:
        shape = shapes[schema] = Shape(schema, preserve)
    return shape


def shape_of(schema: Schema | None) -> Shape:
    """Return the shape of a whole object; without a schema it is deduced."""
    return DEDUCED if schema is None else _cached(schema, False)


_UNTYPED = Schema()
_ATOMIC = Schema(map_type="atomic")
DEDUCED = Shape(_UNTYPED, False)
"""The shape of any value: objects merge field by field, lists are replaced as a whole."""
ATOMIC = Shape(_ATOMIC, False)
"""The shape of a value that is always replaced as a whole."""

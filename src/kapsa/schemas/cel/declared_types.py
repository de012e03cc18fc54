"""The CEL types that a schema declares for its values, with bounds on their sizes.

A schema becomes the type that rules see: named fields of an object, elements of lists and maps. Fields without
a type are hidden. Sizes follow from `maxLength`, `maxItems` and `maxProperties`, otherwise from the largest
request that the server accepts; the cost estimator needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.syntax import RESERVED
from kapsa.schemas.cel.language.types import Type
from kapsa.schemas.schema import OBJECT_META, TYPE_AND_OBJECT_META, Schema

__all__ = ["MAX_REQUEST", "DeclaredType", "Field", "declare", "escape"]

MAX_REQUEST = 3 * 1024 * 1024
_TIME_SIZE = 32
_FORMATS = {
    "duration": (types.DURATION, 3, _TIME_SIZE),
    "date": (types.TIMESTAMP, 12, 12),
    "date-time": (types.TIMESTAMP, 21, _TIME_SIZE),
}
_SCALARS = {"boolean": (types.BOOL, 4), "number": (types.DOUBLE, 1), "integer": (types.INT, 1)}
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL = re.compile(r"__|[./-]")
_ESCAPABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")

_declared: WeakKeyDictionary[Schema, dict[bool, DeclaredType | None]] = WeakKeyDictionary()


class DeclaredType:
    """The type of a node of a schema: a scalar, a list or map of `element`, or an object with `fields`."""

    __slots__ = ("element", "fields", "key", "max_elements", "min_size", "scalar")

    def __init__(
        self,
        *,
        scalar: Type | None = None,
        element: DeclaredType | None = None,
        key: DeclaredType | None = None,
        fields: dict[str, Field] | None = None,
        max_elements: int = 0,
        min_size: int = 2,
    ) -> None:
        self.scalar = scalar
        self.element = element
        self.key = key
        self.fields = fields
        """The fields of an object by their escaped names, None for other types."""
        self.max_elements = max_elements
        """The most characters, items or entries of a value, 0 for a value of fixed size."""
        self.min_size = min_size
        """The fewest bytes that a value takes as JSON."""

    def type(self, name: str) -> Type:
        """Return the CEL type; objects are named after their position below `name`."""
        if self.scalar is not None:
            return self.scalar
        if self.fields is not None:
            return types.struct(name, self)
        assert self.element is not None
        if self.key is not None:
            return types.map_of(types.STRING, self.element.type(f"{name}.@elem"))
        return types.list_of(self.element.type(f"{name}.@idx"))


class Field(msgspec.Struct, frozen=True):
    """A field of an object: its name in JSON, and its type."""

    name: str
    type: DeclaredType


_STRING = DeclaredType(scalar=types.STRING)


def declare(schema: Schema, *, resource: bool) -> DeclaredType | None:
    """Return the type of a schema's values, None if rules cannot see them.

    A resource, and so an embedded one, always has apiVersion, kind, and a metadata with name and generateName.
    """
    cached = _declared.get(schema)
    if cached is None:
        cached = _declared[schema] = {}
    if resource not in cached:
        cached[resource] = _declare(schema, resource)
    return cached[resource]


def _declare(schema: Schema, resource: bool) -> DeclaredType | None:
    if schema.int_or_string:
        longest = MAX_REQUEST - 2 if schema.max_length is None else _length(schema) * 4
        return DeclaredType(scalar=types.DYN, max_elements=longest, min_size=1)
    if schema.type == "array":
        return _list(schema)
    if schema.additional is not None and schema.additional.format == "quantity":
        # Amounts of built-in kinds have no type that CEL knows, so their maps are hidden.
        return None
    if schema.type == "object":
        return _map(schema) if _is_map(schema) else _object(schema, resource)
    if schema.type == "string":
        return _string(schema)
    if schema.type in _SCALARS:
        scalar, size = _SCALARS[schema.type]
        return DeclaredType(scalar=scalar, min_size=size)
    return None


def escape(name: str) -> str | None:
    """Return a field's name as an identifier, `foo__dash__bar` for `foo-bar`; None if it cannot be one."""
    if name in RESERVED:
        return f"__{name}__"
    if _ESCAPABLE.fullmatch(name) is None:
        return None
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], name)


def _is_map(schema: Schema) -> bool:
    additional = schema.additional
    if additional is None or schema.properties:
        return False
    # `additionalProperties: true` gives the values no schema, so the object has no fields that rules can see.
    return bool(additional.type) or additional.int_or_string or additional.preserve_unknown


def _list(schema: Schema) -> DeclaredType | None:
    if schema.items is None:
        return None
    element = declare(schema.items, resource=schema.items.embedded_resource)
    if element is None:
        return None
    most = schema.max_items
    if most is None:
        most = (MAX_REQUEST - 2) // (element.min_size + 1)
    return DeclaredType(element=element, max_elements=max(0, most))


def _map(schema: Schema) -> DeclaredType | None:
    assert schema.additional is not None
    element = declare(schema.additional, resource=schema.additional.embedded_resource)
    if element is None:
        return None
    most = schema.max_properties
    if most is None:
        most = (MAX_REQUEST - 2) // (element.min_size + 6)
    return DeclaredType(element=element, key=_STRING, max_elements=max(0, most))


def _object(schema: Schema, resource: bool) -> DeclaredType:
    properties: Mapping[str, Schema] = schema.properties
    if resource:
        properties = _resource_properties(properties)
    fields: dict[str, Field] = {}
    size = 2
    for name, child in properties.items():
        declared = declare(child, resource=child.embedded_resource)
        if declared is None:
            continue
        escaped = escape(name)
        if escaped is not None:
            fields[escaped] = Field(name, declared)
        if name in schema.required and child.default is msgspec.UNSET:
            size += len(name.encode()) + declared.min_size + 4
    return DeclaredType(fields=fields, min_size=size)


_PLAIN = Schema(type="string")
_NAMES = Schema(type="object", properties={"name": _PLAIN, "generateName": _PLAIN})
_IMPLICIT = frozenset(
    {
        *(TYPE_AND_OBJECT_META[name] for name in ("kind", "apiVersion")),
        *(OBJECT_META.properties[name] for name in ("name", "generateName")),
    }
)
"""The parts of a resource that its schema does not declare itself."""
_given: WeakKeyDictionary[Schema, Schema] = WeakKeyDictionary()


def _resource_properties(properties: Mapping[str, Schema]) -> Mapping[str, Schema]:
    """Return the properties of a resource: its own type and names if it declares them all, otherwise plain ones."""
    metadata = properties.get("metadata", OBJECT_META)
    declared = [properties.get("kind"), properties.get("apiVersion")]
    declared += [metadata.properties.get("name"), metadata.properties.get("generateName")]
    if any(one is None or one in _IMPLICIT for one in declared):
        return {**properties, "kind": _PLAIN, "apiVersion": _PLAIN, "metadata": _NAMES}
    given = _given.get(metadata)
    if given is None:
        names = {name: metadata.properties[name] for name in ("name", "generateName")}
        given = _given[metadata] = Schema(type="object", properties=names, required=metadata.required)
    return {**properties, "metadata": given}


def _string(schema: Schema) -> DeclaredType:
    if schema.format in _FORMATS:
        scalar, size, longest = _FORMATS[schema.format]
        return DeclaredType(scalar=scalar, max_elements=longest, min_size=size)
    if schema.format == "byte":
        longest = MAX_REQUEST - 2 if schema.max_length is None else _length(schema)
        return DeclaredType(scalar=types.BYTES, max_elements=longest)
    if schema.max_length is not None:
        longest = _length(schema) * 4
    elif schema.enum:
        longest = max(_text_size(value) for value in schema.enum)
    else:
        longest = MAX_REQUEST - 2
    return DeclaredType(scalar=types.STRING, max_elements=longest)


def _length(schema: Schema) -> int:
    return max(0, schema.max_length or 0)


def _text_size(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else 0

"""Structural OpenAPI v3 schemas from Python types.

Python type                          schema
str, int, float, bool                string, integer, number, boolean
bytes, datetime, date, UUID          string with format byte, date-time, date, uuid
Literal["a", "b"], enum.Enum         enum
list[T], tuple[T, ...], set[T]       array; a set is x-kubernetes-list-type: set
dict[str, T]                         object with additionalProperties
dict[str, Any], Any, msgspec.Raw     x-kubernetes-preserve-unknown-fields
IntOrString, Quantity                x-kubernetes-int-or-string
Part, Spec, any msgspec.Struct       object with properties; a field without a default is required
T | None = None                      optional: None is "absent"
T | None without a default           required and nullable
Annotated[T | None, Field(nullable=True)] = None     optional and nullable
"""

from __future__ import annotations

import enum
import types
import typing
import uuid
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from kapsa.runtime.generate._builtin_lists import builtin_default, builtin_list
from kapsa.runtime.generate.constraints import (
    JSON,
    SchemaError,
    SchemaLocation,
    add_rules,
    check_set,
    constrain,
    extend,
    ordered,
    set_nullable,
    set_once,
)
from kapsa.runtime.generate.docstrings import class_description, field_descriptions
from kapsa.runtime.resources.model import FieldOptions, Scalar, field_options, to_wire

__all__ = ["openapi_schema"]

_SIMPLE: dict[Any, JSON] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
    msgspec.Raw: {"x-kubernetes-preserve-unknown-fields": True},
}
_ARRAYS = (list, tuple, set, frozenset, Sequence, MutableSequence)
_MAPS = (dict, Mapping, MutableMapping)
_COLLECTIONS = (list, dict, set, frozenset, tuple, bytes)


def openapi_schema(hint: Any, *, path: str, defaults: bool = True) -> JSON:
    """Return the structural schema of a type. `path` names it in errors, such as `MyApp.spec`.

    `defaults=False` leaves out defaults, for a status: the server must not fill in what the operator did not
    observe.
    """
    return _schema(hint, SchemaLocation(path, (), defaults))


def _schema(hint: Any, location: SchemaLocation) -> JSON:
    hint, metas = _unwrap(hint, location)
    hint, optional = _without_none(hint, location)
    if optional:
        hint, inner = _unwrap(hint, location)
        metas = [*inner, *metas]
    options = [each for meta in metas if (each := field_options(meta)) is not None]
    node = _bare(hint, options, location)
    for meta in metas:
        constrain(node, meta, location)
    for each in options:
        extend(node, each, location)
    return ordered(node)


def _unwrap(hint: Any, location: SchemaLocation) -> tuple[Any, list[msgspec.Meta]]:
    """Return the type behind Annotated, NewType and type aliases, and the constraints on the way."""
    metas: list[msgspec.Meta] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *annotations = typing.get_args(hint)
            metas = [meta for meta in annotations if isinstance(meta, msgspec.Meta)] + metas
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif isinstance(hint, TypeVar):
            raise SchemaError(location.path, f"unbound type parameter {hint}; use a concrete type")
        else:
            return hint, metas


def _without_none(hint: Any, location: SchemaLocation) -> tuple[Any, bool]:
    """Return the type without None and UNSET, and whether it had one of them."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    arguments = typing.get_args(hint)
    kept = [each for each in arguments if each not in (types.NoneType, msgspec.UnsetType)]
    if not kept:
        raise SchemaError(location.path, "a field must allow a value other than null; give it a type")
    rest: Any = kept[0]
    for each in kept[1:]:
        rest = rest | each
    return rest, len(kept) != len(arguments)


def _bare(hint: Any, options: Sequence[FieldOptions], location: SchemaLocation) -> JSON:
    """Return the schema of a type without annotations."""
    try:
        simple = _SIMPLE.get(hint)
    except TypeError:  # not hashable
        simple = None
    if simple is not None:
        return dict(simple)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    kind = origin or hint
    if kind in (typing.Union, types.UnionType):
        return _union(arguments, location)
    if kind is Literal:
        return _enum(arguments, location)
    if not isinstance(kind, type):
        raise SchemaError(location.path, f"{hint!r} cannot be expressed in a CRD")
    if issubclass(kind, enum.Enum):
        return _enum([member.value for member in kind], location)
    if issubclass(kind, _ARRAYS):
        return _array(kind, arguments, options, location)
    if issubclass(kind, _MAPS):
        return _map(arguments, location)
    if issubclass(kind, msgspec.Struct):
        return _struct(hint, kind, location)
    if issubclass(kind, Scalar):
        return dict(kind.openapi())
    raise SchemaError(
        location.path,
        f"{kind.__qualname__} cannot be expressed in a CRD; make it a Part if it has fields, "
        "or give it from_wire, to_wire and openapi (see Scalar) if it is a single value",
    )


def _union(arguments: Sequence[Any], location: SchemaLocation) -> JSON:
    if set(arguments) == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    names = " | ".join(getattr(each, "__name__", str(each)) for each in arguments)
    raise SchemaError(
        location.path,
        f"a CRD cannot express {names}: the only unions are int | str and T | None. "
        "Use a Part with an optional field for each case, and a rule that exactly one is set",
    )


def _enum(values: Sequence[Any], location: SchemaLocation) -> JSON:
    values = [value for value in values if value is not None]
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return {"type": "string", "enum": list(values)}
    if kinds == {int}:
        return {"type": "integer", "enum": list(values)}
    raise SchemaError(location.path, f"the values of an enum must all be str or all be int, got {values!r}")


def _array(
    kind: type, arguments: Sequence[Any], options: Sequence[FieldOptions], location: SchemaLocation
) -> JSON:
    if kind is tuple:
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise SchemaError(
                location.path, "a CRD cannot express a tuple of fixed length; use a Part, or tuple[T, ...]"
            )
        arguments = arguments[:1]
    if not arguments:
        raise SchemaError(location.path, f"{kind.__name__} needs an item type, such as {kind.__name__}[str]")
    keyed = any(each.list_type == "map" for each in options)
    node: JSON = {"type": "array", "items": _schema(arguments[0], location.below("[]", correlatable=keyed))}
    if issubclass(kind, (set, frozenset)):
        check_set(node, location)
        node["x-kubernetes-list-type"] = "set"
    return node


def _map(arguments: Sequence[Any], location: SchemaLocation) -> JSON:
    key, value = arguments or (str, Any)
    if _unwrap(key, location)[0] is not str:
        raise SchemaError(location.path, f"the keys of a map must be str, got {key!r}")
    if value is Any or value is object:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": _schema(value, location.below("[]"))}


def _struct(hint: Any, kind: type[msgspec.Struct], location: SchemaLocation) -> JSON:
    if kind in location.inside:
        raise SchemaError(
            location.path,
            f"{kind.__name__} contains itself, but the schema of a CRD cannot be recursive; "
            "use dict[str, Any] for the inner part and decode it in the controller",
        )
    inner = SchemaLocation(location.path, (*location.inside, kind), location.defaults, location.correlatable)
    hints, descriptions = _hints(kind, location), field_descriptions(kind)
    properties: JSON = {}
    required: list[str] = []
    rules = [rule for base in reversed(kind.__mro__) for rule in base.__dict__.get("__rules__", ())]
    for info in msgspec.structs.fields(hint):
        below = inner.below(info.encode_name)
        node = _schema(_with_list_type(hints[info.name], kind, info.encode_name), below)
        if (text := descriptions.get(info.name)) and not _has_description(hints[info.name]):
            node["description"] = text
        if info.required:
            required.append(info.encode_name)
        if _is_nullable(hints[info.name], required=info.required):
            set_nullable(node)
        if location.defaults:
            _set_default(node, info, below)
        if (default := builtin_default(kind, info.encode_name)) is not None:
            node["default"] = default
        if _is_immutable(hints[info.name]) and not info.required and "default" not in node:
            rules.append(set_once(info.encode_name))
        properties[info.encode_name] = ordered(node)
    node = {"type": "object"}
    if description := class_description(kind):
        node["description"] = description
    if properties:
        node["properties"] = properties
    if required:
        node["required"] = required
    if rules:
        add_rules(node, rules, location)
    return node


def _with_list_type(hint: Any, kind: type, name: str) -> Any:
    """Return the type of a field, with the keys of its list if Kubernetes itself defines the type."""
    meta = builtin_list(kind, name)
    return hint if meta is None else Annotated[hint, meta]


def _hints(kind: type, location: SchemaLocation) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise SchemaError(
            location.path, f"cannot resolve a type of {kind.__qualname__} in its module: {error}"
        ) from None


def _metas(hint: Any) -> list[msgspec.Meta]:
    """Return the constraints on a field, on either side of `| None`."""
    if typing.get_origin(hint) is Annotated:
        return [meta for meta in hint.__metadata__ if isinstance(meta, msgspec.Meta)] + _metas(
            hint.__origin__
        )
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [meta for each in typing.get_args(hint) for meta in _metas(each)]
    return []


def _is_nullable(hint: Any, *, required: bool) -> bool:
    if any(options.nullable for meta in _metas(hint) if (options := field_options(meta))):
        return True
    while typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    return required and types.NoneType in typing.get_args(hint)


def _has_description(hint: Any) -> bool:
    return any(meta.description for meta in _metas(hint))


def _is_immutable(hint: Any) -> bool:
    return any(options.immutable for meta in _metas(hint) if (options := field_options(meta)))


def _set_default(node: JSON, info: msgspec.structs.FieldInfo, location: SchemaLocation) -> None:
    """Set the default that the server fills in.

    None means absent; empty collections are left to the model.
    """
    if info.default is not msgspec.NODEFAULT:
        value = info.default
    elif info.default_factory is not msgspec.NODEFAULT:
        value = info.default_factory()
    else:
        return
    if value is None or value is msgspec.UNSET or (isinstance(value, _COLLECTIONS) and not value):
        return
    default = to_wire(value)
    if "enum" in node and default not in node["enum"]:
        raise SchemaError(location.path, f"the default {default!r} is not one of {node['enum']!r}")
    node["default"] = default

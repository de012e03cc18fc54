"""From Python types to the structural OpenAPI v3 schemas of a CRD.

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
import re
import types
import typing
import uuid
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from kapsa.runtime.docstrings import class_description, field_descriptions
from kapsa.runtime.model import FieldOptions, Rule, Scalar, field_options, to_wire

__all__ = ["SchemaError", "openapi_schema"]

JSON = dict[str, Any]

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
_KEY_ORDER = (
    "description",
    "title",
    "type",
    "format",
    "enum",
    "nullable",
    "default",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "anyOf",
    "items",
    "additionalProperties",
    "properties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
_RANK = {key: rank for rank, key in enumerate(_KEY_ORDER)}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_NOT_RE2 = re.compile(r"\(\?(?:[=!]|<[=!]|>|P=|\()|\\[1-9]|[*+?}]\+")
"""Lookaround, atomic groups, back-references and possessive quantifiers."""
_CEL_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


class SchemaError(TypeError):
    """A Python type that has no form in a CRD."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class _Place(msgspec.Struct, frozen=True):
    """Where in the tree of types we are, and what holds there."""

    path: str
    inside: tuple[type, ...] = ()
    """The structs around this place, to notice one that contains itself."""
    defaults: bool = True
    """Whether defaults are the server's to fill in: yes in a spec, no in a status."""
    correlatable: bool = True
    """Whether the server knows this place's old value: not inside a list without keys."""

    def below(self, name: str, *, correlatable: bool = True) -> _Place:
        path = f"{self.path}{name}" if name.startswith("[") else f"{self.path}.{name}"
        return _Place(path, self.inside, self.defaults, self.correlatable and correlatable)


def openapi_schema(hint: Any, *, path: str, defaults: bool = True) -> JSON:
    """The structural schema of a type. `path` names it in errors, such as `MyApp.spec`.

    `defaults=False` leaves out defaults, for a status: what an operator has not found, nobody should fill in.
    """
    return _schema(hint, _Place(path, (), defaults))


def _schema(hint: Any, place: _Place) -> JSON:
    hint, metas = _unwrap(hint, place)
    hint, optional = _without_none(hint, place)
    if optional:
        hint, inner = _unwrap(hint, place)
        metas = [*inner, *metas]
    options = [found for meta in metas if (found := field_options(meta)) is not None]
    node = _bare(hint, options, place)
    for meta in metas:
        _constrain(node, meta, place)
    for found in options:
        _extend(node, found, place)
    return _ordered(node)


def _unwrap(hint: Any, place: _Place) -> tuple[Any, list[msgspec.Meta]]:
    """The type behind Annotated, NewType and type aliases, and the constraints met on the way."""
    metas: list[msgspec.Meta] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *found = typing.get_args(hint)
            metas = [meta for meta in found if isinstance(meta, msgspec.Meta)] + metas
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif isinstance(hint, TypeVar):
            raise SchemaError(place.path, f"the type parameter {hint} is open; use a concrete type")
        else:
            return hint, metas


def _without_none(hint: Any, place: _Place) -> tuple[Any, bool]:
    """The type without None and UNSET, and whether they were in it."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    arguments = typing.get_args(hint)
    kept = [each for each in arguments if each not in (types.NoneType, msgspec.UnsetType)]
    if not kept:
        raise SchemaError(place.path, "a field that can only be null or absent says nothing")
    rest: Any = kept[0]
    for each in kept[1:]:
        rest = rest | each
    return rest, len(kept) != len(arguments)


def _bare(hint: Any, options: Sequence[FieldOptions], place: _Place) -> JSON:
    """The schema of a type without annotations."""
    try:
        known = _SIMPLE.get(hint)
    except TypeError:
        known = None
    if known is not None:
        return dict(known)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    kind = origin or hint
    if kind in (typing.Union, types.UnionType):
        return _union(arguments, place)
    if kind is Literal:
        return _enum(arguments, place)
    if not isinstance(kind, type):
        raise SchemaError(place.path, f"{hint!r} has no form in a CRD")
    if issubclass(kind, enum.Enum):
        return _enum([member.value for member in kind], place)
    if issubclass(kind, _ARRAYS):
        return _array(kind, arguments, options, place)
    if issubclass(kind, _MAPS):
        return _map(arguments, place)
    if issubclass(kind, msgspec.Struct):
        return _struct(hint, kind, place)
    if issubclass(kind, Scalar):
        return dict(kind.openapi())
    raise SchemaError(
        place.path,
        f"{kind.__qualname__} has no form in a CRD; make it a Part if it has fields, "
        "or give it from_wire, to_wire and openapi (see Scalar) if it is one value",
    )


def _union(arguments: Sequence[Any], place: _Place) -> JSON:
    if set(arguments) == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    names = " | ".join(getattr(each, "__name__", str(each)) for each in arguments)
    raise SchemaError(
        place.path,
        f"a CRD cannot express {names}: of unions it has only int | str and T | None. "
        "Use one Part with an optional field for each case, and a rule that exactly one is set",
    )


def _enum(values: Sequence[Any], place: _Place) -> JSON:
    values = [value for value in values if value is not None]
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return {"type": "string", "enum": list(values)}
    if kinds == {int}:
        return {"type": "integer", "enum": list(values)}
    raise SchemaError(place.path, f"an enum has values of one type, str or int; these are {values!r}")


def _array(kind: type, arguments: Sequence[Any], options: Sequence[FieldOptions], place: _Place) -> JSON:
    if kind is tuple:
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise SchemaError(
                place.path, "a tuple of fixed length has no form in a CRD; use a Part, or tuple[T, ...]"
            )
        arguments = arguments[:1]
    if not arguments:
        raise SchemaError(place.path, f"say what the {kind.__name__} holds, such as {kind.__name__}[str]")
    keyed = any(found.list_type == "map" for found in options)
    node: JSON = {"type": "array", "items": _schema(arguments[0], place.below("[]", correlatable=keyed))}
    if issubclass(kind, (set, frozenset)):
        _check_set(node, place)
        node["x-kubernetes-list-type"] = "set"
    return node


def _check_set(node: JSON, place: _Place) -> None:
    if node["items"].get("type", "object") in ("object", "array"):
        raise SchemaError(place.path, "a set holds strings, numbers or booleans; use a list with map_keys")


def _map(arguments: Sequence[Any], place: _Place) -> JSON:
    key, value = arguments or (str, Any)
    if _unwrap(key, place)[0] is not str:
        raise SchemaError(place.path, f"the keys of a map are strings, not {key!r}")
    if value is Any or value is object:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": _schema(value, place.below("[]"))}


def _struct(hint: Any, kind: type[msgspec.Struct], place: _Place) -> JSON:
    if kind in place.inside:
        raise SchemaError(
            place.path,
            f"{kind.__name__} contains itself, and a CRD's schema cannot be recursive; "
            "use dict[str, Any] for the inner part and decode it yourself",
        )
    inner = _Place(place.path, (*place.inside, kind), place.defaults, place.correlatable)
    hints, descriptions = _hints(kind, place), field_descriptions(kind)
    properties: JSON = {}
    required: list[str] = []
    rules = [rule for base in reversed(kind.__mro__) for rule in base.__dict__.get("__rules__", ())]
    for info in msgspec.structs.fields(hint):
        below = inner.below(info.encode_name)
        node = _schema(hints[info.name], below)
        if (text := descriptions.get(info.name)) and not _has_description(hints[info.name]):
            node["description"] = text
        if info.required:
            required.append(info.encode_name)
        if _is_nullable(hints[info.name], required=info.required):
            _set_nullable(node)
        if place.defaults:
            _set_default(node, info, below)
        if _is_immutable(hints[info.name]) and not info.required and "default" not in node:
            rules.append(_set_once(info.encode_name))
        properties[info.encode_name] = _ordered(node)
    node = {"type": "object"}
    if description := class_description(kind):
        node["description"] = description
    if properties:
        node["properties"] = properties
    if required:
        node["required"] = required
    if rules:
        _add_rules(node, rules, place)
    return node


def _hints(kind: type, place: _Place) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise SchemaError(
            place.path, f"{kind.__qualname__} names a type that its module does not have: {error}"
        ) from None


def _metas(hint: Any) -> list[msgspec.Meta]:
    """The constraints on a field itself, on either side of `| None`."""
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


def _set_nullable(node: JSON) -> None:
    """Allow null. The server holds null against an enum, whatever the enum lists; a rule is not run on it."""
    node["nullable"] = True
    if "enum" in node:
        values = node.pop("enum")
        listed = ", ".join(str(value) for value in values)
        rule = Rule(
            rule=f"self in {msgspec.json.encode(values).decode()}", message=f"must be null or one of {listed}"
        )
        node.setdefault("x-kubernetes-validations", []).append(msgspec.to_builtins(rule))


def _has_description(hint: Any) -> bool:
    return any(meta.description for meta in _metas(hint))


def _is_immutable(hint: Any) -> bool:
    return any(options.immutable for meta in _metas(hint) if (options := field_options(meta)))


def _set_default(node: JSON, info: msgspec.structs.FieldInfo, place: _Place) -> None:
    """What the server fills in. None means absent, and empty collections are left to the model."""
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
        raise SchemaError(place.path, f"the default {default!r} is not one of {node['enum']!r}")
    node["default"] = default


def _constrain(node: JSON, meta: msgspec.Meta, place: _Place) -> None:
    for key, value in (
        ("description", meta.description),
        ("title", meta.title),
        ("multipleOf", meta.multiple_of),
    ):
        if value is not None:
            node[key] = value
    for key, inclusive, exclusive in (("minimum", meta.ge, meta.gt), ("maximum", meta.le, meta.lt)):
        if inclusive is not None:
            node[key] = inclusive
        if exclusive is not None:
            node[key] = exclusive
            node["exclusive" + key.capitalize()] = True
    if meta.pattern is not None:
        _check_pattern(meta.pattern, place)
        node["pattern"] = meta.pattern
    for value, key in zip(
        (meta.min_length, meta.max_length), _LENGTHS.get(node.get("type", ""), ()), strict=False
    ):
        if value is not None:
            node[key] = value


def _check_pattern(pattern: str, place: _Place) -> None:
    if found := _NOT_RE2.search(pattern):
        raise SchemaError(
            place.path,
            f"the API server's patterns (RE2) have no {found[0]!r}: lookaround, back-references and "
            "possessive quantifiers are Python's; use a rule instead",
        )


def _extend(node: JSON, options: FieldOptions, place: _Place) -> None:
    if options.enum:
        node["enum"] = to_wire(options.enum)
    if options.format:
        node["format"] = options.format
    if options.int_or_string:
        node.pop("type", None)
        node["x-kubernetes-int-or-string"] = True
    if options.preserve_unknown:
        node["x-kubernetes-preserve-unknown-fields"] = True
    if options.embedded_resource:
        node["type"] = "object"
        node["x-kubernetes-embedded-resource"] = True
    if options.list_type:
        _set_list_type(node, options, place)
    if options.map_type:
        node["x-kubernetes-map-type"] = options.map_type
    rules = list(options.rules)
    if options.immutable:
        rules.append(Rule(rule="self == oldSelf", message="cannot be changed once it is set"))
    if rules:
        _add_rules(node, rules, place)


def _set_list_type(node: JSON, options: FieldOptions, place: _Place) -> None:
    if node.get("type") != "array":
        raise SchemaError(place.path, "list_type and map_keys belong to a list")
    node["x-kubernetes-list-type"] = options.list_type
    if options.list_type == "set":
        _check_set(node, place)
    if options.list_type != "map":
        return
    if not options.map_keys:
        raise SchemaError(
            place.path, 'list_type="map" needs map_keys: the fields that tell the entries apart'
        )
    properties, required = node["items"].get("properties", {}), node["items"].get("required", ())
    for key in options.map_keys:
        if key not in properties:
            raise SchemaError(
                place.path, f"map key {key!r} is not a field of the entries (keys are wire names)"
            )
        if key not in required and "default" not in properties[key]:
            raise SchemaError(
                place.path, f"map key {key!r} must be required in the entries or have a default"
            )
    node["x-kubernetes-list-map-keys"] = list(options.map_keys)


def _add_rules(node: JSON, rules: Sequence[Rule], place: _Place) -> None:
    for rule in rules:
        if "oldSelf" in rule.rule and not place.correlatable:
            raise SchemaError(
                place.path,
                "a rule over oldSelf (immutable is one) needs to know which entry was which: "
                "give the list map_keys, or put the rule on the list itself",
            )
    node.setdefault("x-kubernetes-validations", []).extend(msgspec.to_builtins(list(rules)))


def _set_once(name: str) -> Rule:
    """An optional immutable field must not be removed to be set anew."""
    escaped = _cel_name(name)
    return Rule(
        rule=f"!has(oldSelf.{escaped}) || has(self.{escaped})",
        message=f"{name} cannot be removed once it is set",
    )


def _cel_name(name: str) -> str:
    """A field's name as CEL has it, with the escapes the API server defines."""
    escaped = name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__")
    escaped = escaped.replace("/", "__slash__")
    return f"__{escaped}__" if escaped in _CEL_RESERVED else escaped


def _ordered(node: JSON) -> JSON:
    """The same keys in the order that people read them in."""
    return dict(sorted(node.items(), key=lambda item: _RANK.get(item[0], len(_RANK))))

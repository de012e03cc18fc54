"""The constraints in field annotations: bounds, patterns, list types and CEL rules, as schema keywords."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kapsa.runtime.resources.model import FieldOptions, Rule, to_wire

__all__ = [
    "JSON",
    "SchemaError",
    "SchemaLocation",
    "add_rules",
    "check_set",
    "constrain",
    "extend",
    "ordered",
    "set_nullable",
    "set_once",
]

JSON = dict[str, Any]

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
    """A Python type cannot be expressed in a CRD."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class SchemaLocation(msgspec.Struct, frozen=True):
    """A position in the tree of types, and the rules that apply there."""

    path: str
    inside: tuple[type, ...] = ()
    """The enclosing structs, to detect one that contains itself."""
    defaults: bool = True
    """True if the server fills in defaults: in a spec, but not in a status."""
    correlatable: bool = True
    """True if the server can correlate the old value: not inside a list without keys."""

    def below(self, name: str, *, correlatable: bool = True) -> SchemaLocation:
        """Return the location of a field or item."""
        path = f"{self.path}{name}" if name.startswith("[") else f"{self.path}.{name}"
        return SchemaLocation(path, self.inside, self.defaults, self.correlatable and correlatable)


def constrain(node: JSON, meta: msgspec.Meta, location: SchemaLocation) -> None:
    """Add the constraints that msgspec has: bounds, lengths, pattern, description."""
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
        _check_pattern(meta.pattern, location)
        node["pattern"] = meta.pattern
    for value, key in zip(
        (meta.min_length, meta.max_length), _LENGTHS.get(node.get("type", ""), ()), strict=False
    ):
        if value is not None:
            node[key] = value


def _check_pattern(pattern: str, location: SchemaLocation) -> None:
    if unsupported := _NOT_RE2.search(pattern):
        raise SchemaError(
            location.path,
            f"the API server's patterns (RE2) do not support {unsupported[0]!r}: replace lookaround, back-references and "
            "possessive quantifiers by a rule",
        )


def extend(node: JSON, options: FieldOptions, location: SchemaLocation) -> None:
    """Add the constraints that only Kubernetes has: list types, rules, preserved fields."""
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
        _set_list_type(node, options, location)
    if options.map_type:
        node["x-kubernetes-map-type"] = options.map_type
    rules = list(options.rules)
    if options.immutable:
        rules.append(Rule(rule="self == oldSelf", message="cannot be changed once it is set"))
    if rules:
        add_rules(node, rules, location)


def _set_list_type(node: JSON, options: FieldOptions, location: SchemaLocation) -> None:
    if node.get("type") != "array":
        raise SchemaError(location.path, "list_type and map_keys apply only to a list")
    node["x-kubernetes-list-type"] = options.list_type
    if options.list_type == "set":
        check_set(node, location)
    if options.list_type != "map":
        return
    if not options.map_keys:
        raise SchemaError(location.path, 'list_type="map" needs map_keys: the fields that identify an entry')
    properties, required = node["items"].get("properties", {}), node["items"].get("required", ())
    for key in options.map_keys:
        if key not in properties:
            raise SchemaError(
                location.path, f"map key {key!r} is not a field of the entries (keys are wire names)"
            )
        if key not in required and "default" not in properties[key]:
            raise SchemaError(
                location.path, f"map key {key!r} must be required in the entries or have a default"
            )
    node["x-kubernetes-list-map-keys"] = list(options.map_keys)


def add_rules(node: JSON, rules: Sequence[Rule], location: SchemaLocation) -> None:
    """Add CEL rules. Raises `SchemaError` where the server cannot evaluate them."""
    for rule in rules:
        if "oldSelf" in rule.rule and not location.correlatable:
            raise SchemaError(
                location.path,
                "a rule with oldSelf (such as immutable) needs to correlate entries: give the list map_keys, or put the "
                "rule on the list itself",
            )
    node.setdefault("x-kubernetes-validations", []).extend(msgspec.to_builtins(list(rules)))


def set_once(name: str) -> Rule:
    """Return the rule that an optional immutable field must not be removed and set again."""
    escaped = _cel_name(name)
    return Rule(
        rule=f"!has(oldSelf.{escaped}) || has(self.{escaped})",
        message=f"{name} cannot be removed once it is set",
    )


def _cel_name(name: str) -> str:
    """Return the name of a field in CEL, with the escapes that the API server defines."""
    escaped = name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__")
    escaped = escaped.replace("/", "__slash__")
    return f"__{escaped}__" if escaped in _CEL_RESERVED else escaped


def ordered(node: JSON) -> JSON:
    """Return the schema with its keys in reading order."""
    return dict(sorted(node.items(), key=lambda item: _RANK.get(item[0], len(_RANK))))


def check_set(node: JSON, location: SchemaLocation) -> None:
    """Reject a set of values that the server cannot compare."""
    if node["items"].get("type", "object") in ("object", "array"):
        raise SchemaError(
            location.path, "a set can hold only strings, numbers or booleans; use a list with map_keys"
        )


def set_nullable(node: JSON) -> None:
    """Allow null.

    The server rejects null for any enum, so the enum becomes a rule, which is not run on null.
    """
    node["nullable"] = True
    if "enum" in node:
        values = node.pop("enum")
        listed = ", ".join(str(value) for value in values)
        rule = Rule(
            rule=f"self in {msgspec.json.encode(values).decode()}", message=f"must be null or one of {listed}"
        )
        node.setdefault("x-kubernetes-validations", []).append(msgspec.to_builtins(rule))

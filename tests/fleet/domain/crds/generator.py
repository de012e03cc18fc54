"""Pairs of structural schemas that differ in a few places, and objects that probe the difference.

All choices come from one source of randomness, so that hypothesis can shrink a failure and a seed repeats a run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Raw = dict[str, Any]

TEXTS = ("", "a", "b", "ab", "aab", "abcd", "2024-01-01T00:00:00Z", "10.0.0.1", "::1", "é")
INTEGERS = (-(2**31) - 1, -3, -1, 0, 1, 2, 3, 4, 6, 10, 2**31, 2**40)
NUMBERS = (-1.5, 0.0, 0.5, 1.0, 1.5, 2.0, 4.0)
NAMES = ("a", "b", "c", "d")
TYPES = (
    "string",
    "string",
    "integer",
    "integer",
    "number",
    "boolean",
    "object",
    "object",
    "array",
    "map",
    "any",
    "int-or-string",
)
PATTERNS = ("^a", "b$", "^[ab]*$")
FORMATS = ("date-time", "ipv4", "ipv6", "quantity", "password", "uuid")
FACETS: dict[str, tuple[tuple[str, tuple[Any, ...]], ...]] = {
    "string": (
        ("minLength", (0, 1, 2, 3)),
        ("maxLength", (0, 1, 2, 3, 30)),
        ("pattern", PATTERNS),
        ("format", FORMATS),
        ("enum", (["a"], ["b", "a"], ["a", "b"], ["a", "b", "ab"], [""])),
        (
            "x-kubernetes-validations",
            ([{"rule": "self != 'b'"}], [{"rule": 'self  != "b"'}], [{"rule": "size(self) < 3"}]),
        ),
    ),
    "integer": (
        ("minimum", (-1, 0, 1, 1.5)),
        ("maximum", (0, 3, 4, 10)),
        ("exclusiveMinimum", (True, False)),
        ("exclusiveMaximum", (True,)),
        ("multipleOf", (1, 2, 3, 4)),
        ("format", ("int32", "int64", "date")),
        ("enum", ([1], [1, 2], [2, 1], [0, 1, 2, 3])),
        (
            "x-kubernetes-validations",
            ([{"rule": "self != 2"}], [{"rule": "self!=2 // two"}], [{"rule": "self < 4"}]),
        ),
    ),
    "number": (
        ("minimum", (-1, 0, 0.5, 1)),
        ("maximum", (0.5, 1, 2, 4)),
        ("exclusiveMinimum", (True, False)),
        ("exclusiveMaximum", (True,)),
        ("multipleOf", (0.5, 1, 2)),
        ("format", ("float", "double")),
        ("enum", ([0.5], [0.5, 1])),
    ),
    "boolean": (("enum", ([True], [True, False])),),
    "object": (
        ("minProperties", (0, 1, 2)),
        ("maxProperties", (1, 2, 3)),
        ("x-kubernetes-map-type", ("atomic", "granular")),
    ),
    "array": (
        ("minItems", (0, 1, 2)),
        ("maxItems", (0, 1, 2)),
        ("x-kubernetes-list-type", ("atomic", "set")),
    ),
    "any": (),
    "int-or-string": (
        ("minimum", (0, 1)),
        ("maxLength", (1, 2)),
        ("pattern", PATTERNS),
        ("enum", ([1, "a"], ["a", 1, 2])),
    ),
}
FACETS["map"] = FACETS["object"]
BRANCH_FACETS = ("minLength", "maxLength", "pattern", "minimum", "maximum", "minItems", "maxItems", "enum")
JUNCTORS = ("allOf", "anyOf", "oneOf")


class Pairs:
    """A source of pairs of schemas, and of objects for them."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pair(self) -> tuple[Raw, Raw]:
        """Return a schema of a resource and a variant of it with one to three changes."""
        old = {"type": "object", "properties": {"spec": self._node(3, "object")}}
        new = copy.deepcopy(old)
        for _ in range(self._random.randint(1, 3)):
            self._mutate(new)
        return old, new

    def objects(self, old: Raw, new: Raw, count: int) -> Iterator[Raw]:
        """Yield objects in the shape of either schema."""
        for index in range(count):
            schema = old if index % 4 else new
            yield {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "w"},
                **{
                    name: self._value(field)
                    for name, field in schema["properties"].items()
                    if self._random.random() < 0.95
                },
            }

    def _choose(self, options: Any) -> Any:
        return options[self._random.randrange(len(options))]

    def _node(self, depth: int, kind: str = "") -> Raw:
        kind = kind or self._choose(TYPES)
        if depth <= 0 and kind in ("object", "array", "map"):
            kind = "string"
        node = self._shape(kind, depth)
        for _ in range(self._choose((0, 0, 0, 1, 1, 2))):
            self._set_facet(node)
        if self._random.random() < 0.1:
            node["nullable"] = True
        if self._random.random() < 0.15:
            self._set_default(node)
        if self._random.random() < 0.15:
            self._add_branch(node)
        return node

    def _shape(self, kind: str, depth: int) -> Raw:
        if kind == "any":
            return {"x-kubernetes-preserve-unknown-fields": True}
        if kind == "int-or-string":
            return {"x-kubernetes-int-or-string": True}
        if kind == "array":
            return {"type": "array", "items": self._node(depth - 1)}
        if kind == "map":
            return {"type": "object", "additionalProperties": self._node(depth - 1)}
        if kind != "object":
            return {"type": kind}
        names = [name for name in NAMES if self._random.random() < 0.6]
        node: Raw = {"type": "object", "properties": {name: self._node(depth - 1) for name in names}}
        if names and self._random.random() < 0.4:
            node["required"] = [self._choose(names)]
        if self._random.random() < 0.15:
            node["x-kubernetes-preserve-unknown-fields"] = True
        return node

    def _set_facet(self, node: Raw) -> None:
        options = FACETS[kind_of(node)]
        if options:
            name, values = self._choose(options)
            node[name] = copy.deepcopy(self._choose(values))

    def _set_default(self, node: Raw) -> None:
        if kind_of(node) in ("string", "integer", "number", "boolean"):
            node["default"] = self._value({key: node[key] for key in node if key != "nullable"})

    def _add_branch(self, node: Raw) -> None:
        name = self._choose((*JUNCTORS, "not"))
        if name == "not":
            node["not"] = self._branch(node)
        else:
            node.setdefault(name, []).append(self._branch(node))

    def _branch(self, node: Raw) -> Raw:
        properties = node.get("properties")
        if properties and self._random.random() < 0.6:
            return {"required": [self._choose(sorted(properties))]}
        options = [option for option in FACETS[kind_of(node)] if option[0] in BRANCH_FACETS]
        if not options:
            return {}
        name, values = self._choose(options)
        return {name: copy.deepcopy(self._choose(values))}

    def _mutate(self, schema: Raw) -> None:
        node = self._choose(list(nodes(schema["properties"]["spec"])))
        mutations: list[Callable[[Raw], None]] = [
            self._set_facet,
            self._set_facet,
            self._drop_key,
            self._drop_key,
            self._drop_key,
            self._add_field,
            self._remove_field,
            self._toggle_required,
            self._toggle_nullable,
            self._change_default,
            self._change_type,
            self._change_branches,
            self._reorder,
            self._toggle_preservation,
        ]
        self._choose(mutations)(node)

    def _drop_key(self, node: Raw) -> None:
        names = [
            name
            for name in node
            if name
            not in ("type", "properties", "items", "additionalProperties", "x-kubernetes-int-or-string")
        ]
        if names and not (node.keys() & {"x-kubernetes-preserve-unknown-fields"} and "type" not in node):
            del node[self._choose(names)]

    def _add_field(self, node: Raw) -> None:
        if "properties" in node:
            node["properties"].setdefault(self._choose((*NAMES, "e")), self._node(1))

    def _remove_field(self, node: Raw) -> None:
        if node.get("properties"):
            name = self._choose(sorted(node["properties"]))
            del node["properties"][name]
            node["required"] = [item for item in node.get("required", ()) if item != name]

    def _toggle_required(self, node: Raw) -> None:
        if node.get("properties"):
            name = self._choose(sorted(node["properties"]))
            node["required"] = sorted({*node.get("required", ())} ^ {name})

    def _toggle_nullable(self, node: Raw) -> None:
        node["nullable"] = not node.get("nullable")

    def _change_default(self, node: Raw) -> None:
        if "default" in node and self._random.random() < 0.4:
            del node["default"]
        else:
            self._set_default(node)

    def _change_type(self, node: Raw) -> None:
        keep = {
            key: node[key]
            for key in ("nullable", "minimum", "maximum", "pattern", "maxLength")
            if key in node
        }
        kind = {"integer": "number", "string": "int-or-string"}.get(kind_of(node), "")
        replaced = self._shape(kind if kind and self._random.random() < 0.6 else self._choose(TYPES), 1)
        node.clear()
        node.update({**keep, **replaced})

    def _change_branches(self, node: Raw) -> None:
        present = [name for name in JUNCTORS if node.get(name)]
        if not present or self._random.random() < 0.4:
            self._add_branch(node)
            return
        branches = node[self._choose(present)]
        if self._random.random() < 0.5:
            branches.pop()
        else:
            branches[0] = self._branch(node)

    def _reorder(self, node: Raw) -> None:
        for name in ("required", "enum", *JUNCTORS):
            if node.get(name):
                node[name] = node[name][::-1]
        node["description"] = "words"

    def _toggle_preservation(self, node: Raw) -> None:
        if node.get("type") == "object":
            node["x-kubernetes-preserve-unknown-fields"] = not node.get(
                "x-kubernetes-preserve-unknown-fields"
            )

    def _value(self, node: Raw) -> Any:
        kind = kind_of(node)
        if node.get("nullable") and self._random.random() < 0.2:
            return None
        if node.get("enum") and self._random.random() < 0.8:
            return self._choose(node["enum"])
        if kind == "string":
            return self._choose(TEXTS)
        if kind == "integer":
            return self._choose(INTEGERS)
        if kind == "number":
            return self._choose((*NUMBERS, *INTEGERS[1:10]))
        if kind == "boolean":
            return self._choose((True, False))
        if kind == "int-or-string":
            return self._choose((*TEXTS, *INTEGERS))
        return self._composite(node, kind)

    def _composite(self, node: Raw, kind: str) -> Any:
        if kind == "array":
            return [self._value(node["items"]) for _ in range(self._choose((0, 1, 2, 2, 3)))]
        if kind == "map":
            return {
                name: self._value(node["additionalProperties"])
                for name in NAMES
                if self._random.random() < 0.5
            }
        if kind == "any":
            return self._choose((None, "a", 1, 1.5, True, [], ["a", None], {}, {"a": 1, "b": {"c": "x"}}))
        value = {
            name: self._value(field)
            for name, field in node["properties"].items()
            if self._random.random() < 0.8
        }
        if node.get("x-kubernetes-preserve-unknown-fields") and self._random.random() < 0.7:
            value.setdefault(self._choose((*NAMES, "e")), self._composite({}, "any"))
        return value


def kind_of(node: Raw) -> str:
    """Return the kind of a node, in the words of `TYPES`."""
    if node.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if "type" not in node:
        return "any"
    return "map" if "additionalProperties" in node else str(node["type"])


def nodes(node: Raw) -> Iterator[Raw]:
    """Yield a node and all nodes below it that describe structure."""
    yield node
    for child in (*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")):
        if isinstance(child, dict):
            yield from nodes(child)

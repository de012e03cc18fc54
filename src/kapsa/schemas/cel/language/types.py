"""The types of CEL, and the rules by which one can be used in place of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "ERROR",
    "INT",
    "NULL",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "Declaration",
    "Substitutions",
    "Type",
    "list_of",
    "map_of",
    "optional_of",
    "parse_type",
    "struct",
    "type_of",
    "unwrap_optional",
]

_TYPE_NAMES = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


class Declaration(Protocol):
    """The declaration of an object type."""

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The declarations of the fields by their names, None if the type has no fields."""


class Type:
    """A type: a scalar, `list(int)`, a declared object, an opaque type, or a parameter such as `A`."""

    __slots__ = ("declared", "kind", "name", "params", "text")

    def __init__(
        self,
        kind: str,
        name: str = "",
        params: tuple[Type, ...] = (),
        declared: Declaration | None = None,
    ) -> None:
        self.kind = kind
        self.name = name or kind
        self.params = params
        self.declared = declared
        """The fields of an object type."""
        inner = ", ".join(param.text for param in params)
        self.text: str = f"{self.name}({inner})" if params else self.name
        """The type as the checker prints it in its errors."""

    def __repr__(self) -> str:
        return self.text

    @property
    def type_name(self) -> str:
        """The name of the type without parameters, as `type(value)` returns it."""
        return _TYPE_NAMES.get(self.kind, self.name)

    @property
    def is_dyn(self) -> bool:
        return self.kind == "dyn"

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"

    def is_exactly(self, other: Type) -> bool:
        return self.text == other.text


BOOL, BYTES, DOUBLE, DURATION = Type("bool"), Type("bytes"), Type("double"), Type("duration")
DYN, INT, NULL, STRING = Type("dyn"), Type("int"), Type("null"), Type("string")
TIMESTAMP, UINT, ERROR = Type("timestamp"), Type("uint"), Type("error", "!error!")
_TYPE = Type("type")
_SCALARS = {
    one.kind: one for one in (BOOL, BYTES, DOUBLE, DURATION, DYN, INT, NULL, STRING, TIMESTAMP, UINT)
} | {"type": _TYPE, "null_type": NULL}
_NULLABLE = frozenset({"opaque", "struct", "duration", "timestamp"})
_PARAMETER = re.compile(r"[A-Z]|_var\d+")
_TOKEN = re.compile(r"[\w.@#]+|[(),<>]")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "type", (value,))


def struct(name: str, declared: Declaration | None = None) -> Type:
    return Type("struct", name, (), declared)


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """Return the type of an optional's value, and whether the type was an optional."""
    return (type_.params[0], True) if type_.is_optional else (type_, False)


@lru_cache(maxsize=512)
def parse_type(text: str) -> Type:
    """Return the type written as `map(string, list(A))`; a single capital letter is a type parameter."""
    tokens = _TOKEN.findall(text.replace("<", "(").replace(">", ")"))
    type_, rest = _parse(tokens)
    if rest:
        raise ValueError(f"not a CEL type: {text!r}")
    return type_


def _parse(tokens: Sequence[str]) -> tuple[Type, Sequence[str]]:
    name, rest = tokens[0], tokens[1:]
    params: list[Type] = []
    if rest and rest[0] == "(":
        rest = rest[1:]
        while rest[0] != ")":
            param, rest = _parse(rest)
            params.append(param)
            rest = rest[1:] if rest[0] == "," else rest
        rest = rest[1:]
    if name in ("list", "map"):
        return Type(name, name, tuple(params) or (DYN,) * (1 if name == "list" else 2)), rest
    if name == "type" and params:
        return type_of(params[0]), rest
    if name in _SCALARS:
        return _SCALARS[name], rest
    if _PARAMETER.fullmatch(name):
        return Type("param", name), rest
    return Type("struct" if name.startswith("kubernetes.") else "opaque", name, tuple(params)), rest


class Substitutions:
    """The types that stand for type parameters, as far as the checker has determined them."""

    __slots__ = ("_types",)

    def __init__(self, types: Mapping[str, Type] | None = None) -> None:
        self._types: dict[str, Type] = dict(types or {})

    def assign(self, sources: Sequence[Type], targets: Sequence[Type]) -> bool:
        """Make `sources` assignable to `targets` if possible; otherwise nothing changes."""
        before = dict(self._types)
        if len(sources) == len(targets) and all(map(self._assignable, sources, targets)):
            return True
        self._types = before
        return False

    def apply(self, type_: Type, *, free_as_dyn: bool = False) -> Type:
        """Return a type with its parameters replaced; free ones stay, or become dyn."""
        bound = self._types.get(type_.text) if self._types else None
        if bound is not None:
            return self.apply(bound, free_as_dyn=free_as_dyn)
        if type_.kind == "param":
            return DYN if free_as_dyn else type_
        if not type_.params:
            return type_
        params = tuple(self.apply(param, free_as_dyn=free_as_dyn) for param in type_.params)
        if all(new is old for new, old in zip(params, type_.params, strict=True)):
            return type_
        return Type(type_.kind, type_.name, params, type_.declared)

    def _assignable(self, one: Type, other: Type) -> bool:
        if other.kind == "param":
            valid, bound = self._bind(one, other)
            if valid or bound:
                return valid
        if one.kind == "param":
            return self._bind(other, one)[0]
        if one.kind in ("dyn", "error") or other.kind in ("dyn", "error"):
            return True
        if one.kind == "null" or other.kind == "null":
            return one.kind == other.kind or (other if one.kind == "null" else one).kind in _NULLABLE
        if one.kind in ("opaque", "list", "map"):
            return (
                one.kind == other.kind
                and one.name == other.name
                and len(one.params) == len(other.params)
                and all(map(self._assignable, one.params, other.params))
            )
        return one.kind == other.kind and (one.kind == "type" or one.name == other.name)

    def _bind(self, type_: Type, parameter: Type) -> tuple[bool, bool]:
        """Bind a parameter. Return whether the type fits, and whether the parameter had a type before."""
        if type_.is_exactly(parameter):
            return True, True
        bound = self._types.get(parameter.text)
        if bound is not None:
            if type_.is_exactly(bound):
                return True, True
            if not self._assignable(type_, bound):
                return False, True
            general = most_general(type_, bound)
            if self._is_free_of(parameter, general):
                self._types[parameter.text] = general
            return True, True
        if self._is_free_of(parameter, type_):
            self._types[parameter.text] = type_
            return True, False
        return False, False

    def _is_free_of(self, parameter: Type, within: Type) -> bool:
        if parameter.is_exactly(within):
            return False
        if within.kind == "param":
            bound = self._types.get(within.text)
            return bound is None or self._is_free_of(parameter, bound)
        return all(self._is_free_of(parameter, inner) for inner in within.params)


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that unify."""
    return one if _is_at_least_as_general(one, other) else other


def _is_at_least_as_general(one: Type, other: Type) -> bool:
    if one.kind in ("dyn", "param"):
        return True
    if other.kind in ("dyn", "param") or one.kind != other.kind:
        return False
    if one.kind in ("opaque", "list", "map"):
        return (
            one.name == other.name
            and len(one.params) == len(other.params)
            and all(map(_is_at_least_as_general, one.params, other.params))
        )
    return one.kind == "type" or one.is_exactly(other)

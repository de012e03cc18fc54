"""The cost of an evaluation as it runs: kube-apiserver ends an expression that costs too much."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kapsa.schemas.cel.library.formats import NamedFormat
from kapsa.schemas.cel.values import Opaque, size_of

__all__ = ["LIST_COST", "MAP_COST", "STRUCT_COST", "CostExceededError", "Meter", "cost_function"]

LIST_COST, MAP_COST, STRUCT_COST = 10, 30, 40
_STRING_FACTOR, _PATTERN_FACTOR = 0.1, 0.25


class CostExceededError(Exception):
    """An evaluation that costs more than its limit. Unlike an error of the expression, nothing absorbs it."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Meter:
    """The cost of an evaluation so far, and its limit."""

    __slots__ = ("cost", "limit")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Add to the cost. Raises CostExceededError if it is above the limit."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceededError


Cost = Callable[[str, Sequence[Any], Any], int]


def cost_function(function: str, overload: str) -> Cost | None:
    """Return the function that computes what a call costs; None for calls that cost 1."""
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)


def _traversal(times: int) -> Cost:
    return lambda _, args, __: math.ceil(size_of(args[0]) * times * _STRING_FACTOR)


def _tree_size(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * _STRING_FACTOR)
    if isinstance(value, bytes):
        return int(len(value) * _STRING_FACTOR)
    if isinstance(value, list):
        return sum(map(_tree_size, value))
    if isinstance(value, dict):
        return sum(_tree_size(key) + _tree_size(item) for key, item in value.items())
    return 1


def _pattern(size: int, pattern: int) -> int:
    return math.ceil((1 + size) * _STRING_FACTOR) * math.ceil(pattern * _PATTERN_FACTOR)


def _match(_: str, args: Sequence[Any], __: Any) -> int:
    return _pattern(size_of(args[0]), size_of(args[1]))


def _validate(_: str, args: Sequence[Any], __: Any) -> int:
    format_ = args[0]
    return _pattern(size_of(args[1]), format_.pattern_size) if isinstance(format_, NamedFormat) else 1


def _contains_in_network(overload: str, args: Sequence[Any], _: Any) -> int:
    size, other = size_of(args[0]), size_of(args[1])
    cost = math.ceil(2 * size * _STRING_FACTOR)
    if overload.startswith("cidr_contains_cidr"):
        cost += math.ceil(size * _STRING_FACTOR) + 1
    if overload.endswith("_string"):
        cost += math.ceil(other * _STRING_FACTOR)
    return cost


def _smaller(_: str, args: Sequence[Any], __: Any) -> int:
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * _STRING_FACTOR)


def _equality(_: str, args: Sequence[Any], __: Any) -> int:
    return 1 if isinstance(args[0], Opaque) else _smaller("", args, None)


def _concatenation(_: str, args: Sequence[Any], __: Any) -> int:
    return math.ceil((size_of(args[0]) + size_of(args[1])) * _STRING_FACTOR)


def _contains_text(_: str, args: Sequence[Any], __: Any) -> int:
    return math.ceil(size_of(args[0]) * _STRING_FACTOR) * math.ceil(size_of(args[1]) * _STRING_FACTOR)


def _selector(size: int) -> int:
    """Return the cost of parsing a selector: one requirement for each two characters at most."""
    return LIST_COST + math.ceil(size * _STRING_FACTOR) + math.ceil(size * 0.5) * (LIST_COST + STRUCT_COST)


def _sets(factor: int) -> Cost:
    return lambda _, args, __: 1 + size_of(args[0]) * size_of(args[1]) * factor


def _allocation(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _self_comparison(items: Sequence[Any]) -> int:
    texts = bool(items) and isinstance(items[0], (str, bytes))
    return _allocation(2 + _STRING_FACTOR if texts else 2, len(items) ** 2)


def _sort(overload: str, args: Sequence[Any], _: Any) -> int:
    return _self_comparison(args[1] if overload.endswith("AssociatedKeys") else args[0])


_BY_OVERLOAD: dict[str, Cost] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": lambda _, __, result: _allocation(1, size_of(result)),
    "list_flatten": lambda _, args, __: _allocation(1, size_of(args[0])),
    "list_flatten_int": lambda _, args, __: _allocation(args[1], size_of(args[0])),
    "lists_range": lambda _, __, result: _allocation(1, size_of(result)),
    "list_reverse": lambda _, __, result: _allocation(1, size_of(result)),
    "list_distinct": lambda _, args, __: _self_comparison(args[0]),
    "cidr_ip": lambda *_: 1,
    "starts_with_string": _traversal(1),
    "ends_with_string": _traversal(1),
    "string_to_bytes": _traversal(1),
    "bytes_to_string": _traversal(1),
    "strings_quote": _traversal(1),
    "string_format": _traversal(1),
    "in_list": lambda _, args, __: size_of(args[1]),
    "equals": _equality,
    "not_equals": _smaller,
    "add_string": _concatenation,
    "add_bytes": _concatenation,
    "matches_string": _match,
    "contains_string": _contains_text,
} | {
    f"{name}_{kind}": _smaller
    for name in ("less", "less_equals", "greater", "greater_equals")
    for kind in ("string", "bytes")
}
_BY_FUNCTION: dict[str, Cost] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda _, args, __: _tree_size(args[0])
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _traversal(1)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip"), _traversal(1)),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _traversal(1)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _traversal(2)),
    **dict.fromkeys(("find", "findAll"), _match),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_in_network),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), _sort),
    "join": lambda _, __, result: math.ceil(size_of(result) * 2 * _STRING_FACTOR),
    "validate": _validate,
    "check": lambda *_: 350_000,
    **dict.fromkeys(("fieldSelector", "labelSelector"), lambda _, args, __: _selector(size_of(args[1]))),
}

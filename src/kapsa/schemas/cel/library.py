"""The functions that Kubernetes adds to CEL: strings, lists, sets, regular expressions, and its own types.

The binding has no opaque types, so a quantity, an address, a URL or a version is represented by a map with
one key, the name of its type. Equality works on it; printing it with `string()` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kapsa.schemas.cel import networks as cel_networks
from kapsa.schemas.cel import numbers as cel_numbers
from kapsa.schemas.cel import text as cel_text

if TYPE_CHECKING:
    from cel_expr_python import cel as binding

__all__ = ["FUNCTIONS", "declarations"]

Overload = tuple[str, str, str, Callable[..., Any]]
"""`.` for a method or "" for a function, the parameter types, the result type, and the implementation."""


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _sum(items: Sequence[Any]) -> Any:
    total: Any = None
    for item in items:
        total = item if total is None else total + item
    return 0 if total is None else total


def _least(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _greatest(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def _index(items: Sequence[Any], value: Any) -> int:
    return next((at for at, item in enumerate(items) if _same(item, value)), -1)


def _last_index(items: Sequence[Any], value: Any) -> int:
    indexes = [at for at, item in enumerate(items) if _same(item, value)]
    return indexes[-1] if indexes else -1


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _contains(items: Sequence[Any], values: Sequence[Any]) -> bool:
    return all(_index(items, value) >= 0 for value in values)


def _equivalent(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return _contains(one, other) and _contains(other, one)


def _intersects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return any(_index(one, item) >= 0 for item in other)


_ELEMENTS = ("int", "uint", "double", "string", "bool", "bytes", "timestamp", "duration", "map<string, dyn>")

FUNCTIONS: dict[str, list[Overload]] = {
    "isSorted": [(".", "list<dyn>", "bool", _is_sorted)],
    "sum": [(".", "list<dyn>", "dyn", _sum)],
    "min": [(".", "list<dyn>", "dyn", _least)],
    "max": [(".", "list<dyn>", "dyn", _greatest)],
    "sets.contains": [("", "list<dyn>; list<dyn>", "bool", _contains)],
    "sets.equivalent": [("", "list<dyn>; list<dyn>", "bool", _equivalent)],
    "sets.intersects": [("", "list<dyn>; list<dyn>", "bool", _intersects)],
    # A parameter of type dyn matches nothing in a call, so each element type needs an overload.
    "indexOf": [(".", f"list<dyn>; {kind}", "int", _index) for kind in _ELEMENTS],
    "lastIndexOf": [(".", f"list<dyn>; {kind}", "int", _last_index) for kind in _ELEMENTS],
}
for _family in (cel_text.FUNCTIONS, cel_numbers.FUNCTIONS, cel_networks.FUNCTIONS):
    for _name, _overloads in _family.items():
        FUNCTIONS.setdefault(_name, []).extend(_overloads)


@cache
def declarations() -> list[binding.FunctionDecl]:
    """Return the declarations of all functions for the binding."""
    from cel_expr_python import cel

    def overload(name: str, number: int, entry: Overload) -> binding.Overload:
        style, parameters, result, function = entry
        return cel.Overload(
            f"{name.replace('.', '_')}_{number}",
            return_type=cel.Type(result),
            parameters=[cel.Type(kind.strip()) for kind in parameters.split(";")],
            is_member=style == ".",
            impl=function,
        )

    return [
        cel.FunctionDecl(name, [overload(name, number, entry) for number, entry in enumerate(entries)])
        for name, entries in FUNCTIONS.items()
    ]

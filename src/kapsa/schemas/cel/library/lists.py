"""Functions for lists, sets and maps: those of Kubernetes, and cel-go's lists, sets and comprehensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from kapsa.schemas.cel.language.syntax import UInt
from kapsa.schemas.cel.library.operators import FUNCTIONS as _OPERATORS
from kapsa.schemas.cel.library.operators import show_key
from kapsa.schemas.cel.library.signatures import COMPARABLE, Functions, function, method
from kapsa.schemas.cel.values import (
    CelDuration,
    CelEvaluationError,
    compare,
    equals,
    type_name,
)

__all__ = ["FUNCTIONS"]

_add = _OPERATORS["_+_"][0].compute
_ZEROS = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": CelDuration(0)}


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(compare(left, right) <= 0 for left, right in pairwise(items))


def _sum(zero: Any) -> Callable[[Sequence[Any]], Any]:
    def compute(items: Sequence[Any]) -> Any:
        total = zero
        for item in items:
            total = _add(total, item)
        return total

    return compute


def _best(name: str, worse: int) -> Callable[[Sequence[Any]], Any]:
    def compute(items: Sequence[Any]) -> Any:
        if not items:
            raise CelEvaluationError(f"{name} called on empty list")
        best = items[0]
        for item in items[1:]:
            if compare(best, item) == worse:
                best = item
        return best

    return compute


def _index(items: Sequence[Any], value: Any) -> int:
    return next((at for at, item in enumerate(items) if equals(item, value)), -1)


def _last_index(items: Sequence[Any], value: Any) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if equals(items[at], value)), -1)


def _contains(items: Sequence[Any], values: Sequence[Any]) -> bool:
    return all(_index(items, value) >= 0 for value in values)


def _equivalent(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return _contains(one, other) and _contains(other, one)


def _intersects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return any(_index(one, item) >= 0 for item in other)


def _slice(items: Sequence[Any], start: int, end: int) -> list[Any]:
    call = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise CelEvaluationError(f"{call}, negative indexes not supported")
    if start > end:
        raise CelEvaluationError(f"{call}, start index must be less than or equal to end index")
    if len(items) < end:
        raise CelEvaluationError(f"{call}, list is length {len(items)}")
    return list(items[start:end])


def _flatten(items: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelEvaluationError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            flat += _flatten(item, depth - 1)
        else:
            flat.append(item)
    return flat


def _sort(items: Sequence[Any]) -> list[Any]:
    return _sort_by(items, items)


def _sort_by(items: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    if len(items) != len(keys):
        raise CelEvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(items)} and {len(keys)} elements respectively"
        )
    if keys and type_name(keys[0]) in ("list", "map", "null_type"):
        raise CelEvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CelEvaluationError("list elements must have the same type")
    order = cmp_to_key(compare)
    indexes = sorted(range(len(keys)), key=lambda index: order(keys[index]))
    return [items[index] for index in indexes]


def _distinct(items: Sequence[Any]) -> list[Any]:
    distinct: list[Any] = []
    for item in items:
        if _index(distinct, item) < 0:
            distinct.append(item)
    return distinct


def _insert(entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key in entries:
        raise CelEvaluationError(f"insert failed: key {show_key(key)} already exists")
    return {**entries, key: value}


def _insert_all(entries: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in more.items():
        entries = _insert(entries, key, value)
    return entries


FUNCTIONS: Functions = {
    "isSorted": [
        method(f"list_{kind}_is_sorted_bool", f"list({kind})", "bool", _is_sorted) for kind in COMPARABLE
    ],
    "sum": [
        method(f"list_{kind}_sum_{kind}", f"list({kind})", kind, _sum(zero)) for kind, zero in _ZEROS.items()
    ],
    "max": [
        method(f"list_{kind}_max_{kind}", f"list({kind})", kind, _best("max", -1)) for kind in COMPARABLE
    ],
    "min": [method(f"list_{kind}_min_{kind}", f"list({kind})", kind, _best("min", 1)) for kind in COMPARABLE],
    "indexOf": [method("list_a_index_of_int", "list(A); A", "int", _index)],
    "lastIndexOf": [method("list_a_last_index_of_int", "list(A); A", "int", _last_index)],
    "sets.contains": [function("list_sets_contains_list", "list(T); list(T)", "bool", _contains)],
    "sets.equivalent": [function("list_sets_equivalent_list", "list(T); list(T)", "bool", _equivalent)],
    "sets.intersects": [function("list_sets_intersects_list", "list(T); list(T)", "bool", _intersects)],
    "slice": [method("list_slice", "list(T); int; int", "list(T)", _slice)],
    "flatten": [
        method("list_flatten", "list(list(T))", "list(T)", _flatten),
        method("list_flatten_int", "list(dyn); int", "list(dyn)", _flatten),
    ],
    "sort": [method(f"list_{kind}_sort", f"list({kind})", f"list({kind})", _sort) for kind in COMPARABLE],
    "@sortByAssociatedKeys": [
        method(f"list_{kind}_sortByAssociatedKeys", f"list(T); list({kind})", "list(T)", _sort_by)
        for kind in COMPARABLE
    ],
    "lists.range": [function("lists_range", "int", "list(int)", lambda count: list(range(count)))],
    "reverse": [method("list_reverse", "list(T)", "list(T)", lambda items: items[::-1])],
    "distinct": [method("list_distinct", "list(T)", "list(T)", _distinct)],
    "cel.@mapInsert": [
        function("@mapInsert_map_key_value", "map(K, V); K; V", "map(K, V)", _insert),
        function("@mapInsert_map_map", "map(K, V); map(K, V)", "map(K, V)", _insert_all),
    ],
}

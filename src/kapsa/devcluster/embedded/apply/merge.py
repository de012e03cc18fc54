"""The merge of an applied configuration into a live object, and the removal of fields."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.comparison import equal, group
from kapsa.devcluster.embedded.apply.fieldset import Fields
from kapsa.devcluster.embedded.apply.shape import DEDUCED, Shape

__all__ = ["merge", "remove"]

_ABSENT = msgspec.UNSET


def merge(live: dict[str, Any], applied: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return `live` with the fields of `applied`. Nothing is removed; unchanged parts are shared."""
    return _merge_maps(live, applied, shape)


def _merge(live: Any, applied: Any, shape: Shape | None) -> Any:
    """Merge two values that are both present."""
    if equal(live, applied):
        return live
    shape = shape or DEDUCED
    form = shape.form_of(applied)
    if form == "map" and not shape.map_atomic:
        before, after = (value if type(value) is dict else {} for value in (live, applied))
        if before or after:
            return _merge_maps(before, after, shape)
    elif form == "list" and not shape.list_atomic:
        first, second = (value if type(value) is list else [] for value in (live, applied))
        if first or second:
            return _merge_lists(first, second, shape)
    return applied


def _merge_maps(live: dict[str, Any], applied: dict[str, Any], shape: Shape) -> dict[str, Any]:
    result = dict(live)
    for name, value in applied.items():
        before = live.get(name, _ABSENT)
        result[name] = value if before is _ABSENT else _merge(before, value, shape.field(name))
    return result


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """Merge items by path element. The result keeps both orders where they agree, otherwise the applied one.

    An item that only the live list has stays behind the items that preceded it.
    """
    before = group(live, shape)
    desired = {element: items[0] for element, items in group(applied, shape).items()}
    # Duplicates in the live list cannot be distinguished, so none is merged with the applied item.
    merged = {
        element: _merge(before[element][0], item, shape.item) if len(before.get(element, ())) == 1 else item
        for element, item in desired.items()
    }
    live_side = deque((shape.element_of(item), item) for item in live)
    applied_side = deque(desired)
    shared = deque(element for element in desired if element in before)
    emitted: set[str] = set()
    result: list[Any] = []

    def emit() -> None:
        element = applied_side.popleft()
        emitted.add(element)
        result.append(merged[element])
        if shared and shared[0] == element:
            shared.popleft()

    while live_side or applied_side:
        if not live_side:
            emit()
            continue
        element, item = live_side[0]
        if element not in desired:
            result.append(item)
            live_side.popleft()
        elif applied_side and element == applied_side[0]:
            live_side.popleft()
            emit()
        elif applied_side and shared and shared[0] != element:
            # The applied list has another shared item first; this one follows in its turn.
            live_side.popleft()
        else:
            if element in emitted:
                live_side.popleft()
            if applied_side:
                emit()
    return result


def remove(value: dict[str, Any], fields: Fields, shape: Shape) -> dict[str, Any]:
    """Return `value` without the paths in `fields`."""
    result = _remove(value, fields, shape)
    return {} if result is None else result


def _remove(value: Any, fields: Fields, shape: Shape | None) -> Any:
    """Return the rest of a value, None for a container of which nothing is left."""
    shape = shape or DEDUCED
    form = shape.form_of(value)
    if form == "scalar":
        return value
    if form == "map":
        if type(value) is not dict or not value or shape.map_atomic:
            return None
        return _remove_from_map(value, fields, shape) or None
    if type(value) is not list or not value or shape.list_atomic:
        return None
    return _remove_from_list(value, fields, shape) or None


def _remove_from_map(value: dict[str, Any], fields: Fields, shape: Shape) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            result[name] = child
        elif node and "." not in node:
            result[name] = _remove(child, node, shape.field(name))
    return result


def _remove_from_list(value: list[Any], fields: Fields, shape: Shape) -> list[Any]:
    result: list[Any] = []
    for item in value:
        node = fields.get(shape.element_of(item))
        if node is None:
            result.append(item)
        elif node and "." not in node:
            result.append(_remove(item, node, shape.item))
    return result

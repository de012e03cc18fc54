"""The fields that a configuration claims, and their conversion when the schema changes."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.comparison import group
from kapsa.devcluster.embedded.apply.fieldset import LEAF, SELF, Fields
from kapsa.devcluster.embedded.apply.shape import DEDUCED, Shape

_encode = msgspec.json.encode
_SETTLED_LIMIT = 1024

__all__ = ["claimed", "reconciled", "with_named_fields"]


def claimed(value: dict[str, Any], shape: Shape) -> Fields:
    """Return the set of all leaves and list items in `value`."""
    return _claimed(value, shape) or {}


def _claimed(value: Any, shape: Shape | None) -> Fields | None:
    """Return the node of one value, None if nothing at or below it is claimed."""
    shape = shape or DEDUCED
    form = shape.form_of(value)
    if form == "map" and not shape.map_atomic:
        return _claimed_map(value, shape) if type(value) is dict else None
    if form == "list" and not shape.list_atomic:
        return _claimed_list(value, shape) if type(value) is list else None
    return LEAF


def _claimed_map(value: dict[str, Any], shape: Shape) -> Fields | None:
    node: Fields = {}
    for name, child in value.items():
        below = _claimed(child, shape.field(name))
        # A struct's field is claimed through its content; a map's key or an empty value itself.
        if child is None or child == {} or not shape.declares(name):
            below = _with_self(below)
        if below is not None:
            node[f"f:{name}"] = below
    return node or None


def _claimed_list(value: list[Any], shape: Shape) -> Fields | None:
    return {
        element: _with_self(_claimed(items[0], shape.item)) if len(items) == 1 else LEAF
        for element, items in group(value, shape).items()
    } or None


def _with_self(node: Fields | None) -> Fields:
    if not node:
        return LEAF
    return node if SELF in node else {SELF: LEAF, **node}


def with_named_fields(fields: Fields, shape: Shape | None) -> Fields:
    """Return the set plus the named struct fields on the way to its paths.

    A set has `spec.replicas` but not `spec`. To remove a struct that became empty, its own path is needed.
    """
    result: Fields = {}
    for element, node in fields.items():
        if not node:
            result[element] = node
            continue
        below = with_named_fields(node, _below(element, shape))
        named = element[0] == "f" and shape is not None and shape.takes_map and shape.declares(element[2:])
        result[element] = _with_self(below) if named else below
    return result


def _below(element: str, shape: Shape | None) -> Shape | None:
    if shape is None:
        return None
    if element[0] == "f" and shape.takes_map:
        return shape.field(element[2:])
    return shape.item if element[0] == "k" and shape.takes_list else None


def reconciled(fields: Fields, shape: Shape) -> Fields:
    """Return the set after a change of schema: the owner of a part of what became atomic owns the whole.

    The same object is returned if nothing changes.
    """
    # Nearly every set fits and recurs with the next write, and encoding it is faster than a walk.
    spelled = _encode(fields)
    if spelled in shape.settled:
        return fields
    result = _reconciled(fields, shape, root=True)
    if result is fields:
        if len(shape.settled) >= _SETTLED_LIMIT:
            shape.settled.clear()
        shape.settled.add(spelled)
    return result


def _reconciled(fields: Fields, shape: Shape, *, root: bool = False) -> Fields:
    """Return the converted node, the same object if nothing below it changes."""
    if shape.takes_map:
        if shape.deduced_map:
            return fields
        if shape.map_atomic and not root:
            return LEAF
    elif shape.scalar:
        return fields
    elif shape.list_atomic:
        return LEAF
    result = fields
    for element, node in fields.items():
        if not node:
            continue
        below = shape.field(element[2:]) if shape.takes_map else shape.item
        if below is None:
            continue
        changed = _reconciled(node, below)
        if changed is not node:
            if result is fields:
                result = dict(fields)
            result[element] = changed
    return result

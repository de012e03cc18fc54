"""Which fields a configuration claims, and how claims follow the schema."""

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
    """Every leaf and every item that `value` mentions."""
    return _claimed(value, shape) or {}


def _claimed(value: Any, shape: Shape | None) -> Fields | None:
    """The node of one value: None when nothing at or below it is claimed."""
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
        # A struct's field is claimed through what is in it; a map's key, and emptiness, in their own right.
        if child is None or child == {} or not shape.declares(name):
            below = _itself(below)
        if below is not None:
            node[f"f:{name}"] = below
    return node or None


def _claimed_list(value: list[Any], shape: Shape) -> Fields | None:
    return {
        element: _itself(_claimed(items[0], shape.item)) if len(items) == 1 else LEAF
        for element, items in group(value, shape).items()
    } or None


def _itself(node: Fields | None) -> Fields:
    if not node:
        return LEAF
    return node if SELF in node else {SELF: LEAF, **node}


def with_named_fields(fields: Fields, shape: Shape | None) -> Fields:
    """The set plus the structs' named fields that lead to its paths.

    A set knows `spec.replicas` but not `spec`; to take a struct out when nothing in it is left, its own path counts.
    """
    result: Fields = {}
    for element, node in fields.items():
        if not node:
            result[element] = node
            continue
        below = with_named_fields(node, _below(element, shape))
        named = element[0] == "f" and shape is not None and shape.takes_map and shape.declares(element[2:])
        result[element] = _itself(below) if named else below
    return result


def _below(element: str, shape: Shape | None) -> Shape | None:
    if shape is None:
        return None
    if element[0] == "f" and shape.takes_map:
        return shape.field(element[2:])
    return shape.item if element[0] == "k" and shape.takes_list else None


def reconciled(fields: Fields, shape: Shape) -> Fields:
    """The set after a change of schema: what became atomic is owned as one, by whoever owned a part of it."""
    # Nearly every set fits, and comes again with the next write: its bytes are quicker to make than a walk.
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
    """The same node unless something below it changes; only nodes with children can."""
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

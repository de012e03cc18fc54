"""The difference between two objects as sets of field paths."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from kapsa.devcluster.embedded.apply.fieldset import LEAF, SELF, Fields, union
from kapsa.devcluster.embedded.apply.shape import Shape, TypedError

__all__ = ["Comparison", "compare", "equal"]

_encode = msgspec.json.encode


class Comparison(NamedTuple):
    """Three disjoint sets of paths. If all are empty, the objects are equal."""

    removed: Fields
    modified: Fields
    added: Fields

    @property
    def changed(self) -> Fields:
        """The paths that are new or have another value."""
        return union(self.modified, self.added)


class _Nodes(NamedTuple):
    """The three sets below one path. None means that neither the path nor anything below it is in the set."""

    removed: Fields | None
    modified: Fields | None
    added: Fields | None


_SAME = _Nodes(None, None, None)
_MODIFIED = _Nodes(None, LEAF, None)


def compare(old: dict[str, Any], new: dict[str, Any], shape: Shape, *, skip: frozenset[str]) -> Comparison:
    """Compare two objects of one shape. Top-level fields in `skip` count as equal."""
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    for name, value in new.items():
        if name not in skip:
            _compare_field(name, old.get(name, _ABSENT), value, shape, removed, modified, added)
    for name, value in old.items():
        if name not in new and name not in skip:
            removed[f"f:{name}"] = _all_paths(value, shape.field(name))
    return Comparison(removed, modified, added)


_ABSENT = msgspec.UNSET


def _compare_field(
    name: str, old: Any, new: Any, shape: Shape, removed: Fields, modified: Fields, added: Fields
) -> None:
    if old is new:
        return
    if old is _ABSENT:
        added[f"f:{name}"] = _all_paths(new, shape.field(name))
        return
    nodes = _compare(old, new, shape.field(name), f".{name}")
    if nodes is not _SAME:
        _collect(f"f:{name}", nodes, removed, modified, added)


def _collect(element: str, nodes: _Nodes, removed: Fields, modified: Fields, added: Fields) -> None:
    if nodes.removed is not None:
        removed[element] = nodes.removed
    if nodes.modified is not None:
        modified[element] = nodes.modified
    if nodes.added is not None:
        added[element] = nodes.added


def _compare(old: Any, new: Any, shape: Shape | None, where: str) -> _Nodes:
    """Compare two values that are both present (null is a value)."""
    if equal(old, new):
        return _SAME
    if shape is None:
        raise TypedError((where, "field not declared in schema"))
    form, other = shape.form_of(new), shape.form_of(old)
    nodes = _compare_as(form, old, new, shape, where)
    if other == form:
        return nodes
    # The value changed its form: the paths of both forms, and its own.
    before = _compare_as(other, old, new, shape, where)
    return _Nodes(*(_either(*pair) for pair in zip(nodes, before, strict=True)))


def _either(left: Fields | None, right: Fields | None) -> Fields | None:
    if left is None or right is None:
        return right if left is None else left
    return union({"f:": left}, {"f:": right})["f:"]  # type: ignore[no-any-return]


def _compare_as(form: str, old: Any, new: Any, shape: Shape, where: str) -> _Nodes:
    if form == "map" and not shape.map_atomic:
        before, after = (value if type(value) is dict else {} for value in (old, new))
        # Two empty ones are a leaf: null and {} differ.
        if before or after:
            return _compare_maps(before, after, shape, where)
    elif form == "list" and not shape.list_atomic:
        first, second = (value if type(value) is list else [] for value in (old, new))
        if first or second:
            return _compare_lists(first, second, shape, where)
    return _MODIFIED


def _compare_maps(old: dict[str, Any], new: dict[str, Any], shape: Shape, where: str) -> _Nodes:
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is value:
            continue
        if before is _ABSENT:
            added[f"f:{name}"] = _all_paths(value, shape.field(name))
            continue
        nodes = _compare(before, value, shape.field(name), f"{where}.{name}")
        if nodes is not _SAME:
            _collect(f"f:{name}", nodes, removed, modified, added)
    for name, value in old.items():
        if name not in new:
            removed[f"f:{name}"] = _all_paths(value, shape.field(name))
    return _Nodes(removed or None, modified or None, added or None)


def _compare_lists(old: list[Any], new: list[Any], shape: Shape, where: str) -> _Nodes:
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    before, after = group(old, shape, where), group(new, shape, where)
    for element, items in after.items():
        others = before.get(element, ())
        if len(items) == 1 and len(others) == 1:
            nodes = _compare(others[0], items[0], shape.item, where)
            if nodes is not _SAME:
                _collect(element, nodes, removed, modified, added)
        elif len(items) > 1 and len(others) > 1:
            if not equal(others, items):
                modified[element] = LEAF
        elif len(items) == 1:
            # New, or no longer a duplicate: its fields are tracked again.
            added[element] = _all_paths(items[0], shape.item)
            if others:
                removed[element] = LEAF
        else:
            # Duplicates are owned as a whole, so the fields of the single item are no longer tracked.
            added[element] = LEAF
            if others:
                removed[element] = _all_paths(others[0], shape.item)
    for element, others in before.items():
        if element not in after:
            removed[element] = _all_paths(others[0], shape.item) if len(others) == 1 else LEAF
    return _Nodes(removed or None, modified or None, added or None)


def group(items: list[Any], shape: Shape, where: str = "") -> dict[str, list[Any]]:
    """Group the items of an associative list by path element, in order."""
    groups: dict[str, list[Any]] = {}
    for index, item in enumerate(items):
        try:
            element = shape.element_of(item)
        except TypedError as error:
            raise TypedError((where, f"element {index}: {error}")) from None
        if element in groups:
            groups[element].append(item)
        else:
            groups[element] = [item]
    return groups


def _all_paths(value: Any, shape: Shape | None) -> Fields:
    """Return the node of a value that only one object has: its own path and all below."""
    if not value or type(value) not in (dict, list):
        return LEAF
    if shape is None:
        raise TypedError(("", "field not declared in schema"))
    if type(value) is dict:
        if shape.map_atomic or not shape.takes_map:
            return LEAF
        node = {f"f:{name}": _all_paths(child, shape.field(name)) for name, child in value.items()}
    else:
        if shape.list_atomic or not shape.takes_list:
            return LEAF
        node = {
            element: _all_paths(items[0], shape.item) if len(items) == 1 else LEAF
            for element, items in group(value, shape).items()
        }
    node[SELF] = LEAF
    return node


def equal(left: Any, right: Any) -> bool:
    """Compare two values as JSON: 1 equals 1.0, a number never equals a boolean (for Python 1 == True)."""
    if left is right:
        return True
    if left != right:
        return False
    kind, other = type(left), type(right)
    if kind is dict or kind is list:
        # The encoded forms differ for 1 and True, but also for 1 and 1.0 and for another order of keys.
        return _encode(left) == _encode(right) or _deeply_equal(left, right)
    return (kind is bool) is (other is bool)


def _deeply_equal(left: Any, right: Any) -> bool:
    if type(left) is dict:
        return all(equal(value, right[name]) for name, value in left.items())
    return all(equal(value, other) for value, other in zip(left, right, strict=True))

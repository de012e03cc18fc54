"""Sets of field paths, represented by the FieldsV1 document itself, so that decoding one costs nothing.

A set is a trie of dicts. A key is one path element in its wire form: `f:name` (a field), `k:{"name":"a"}`
(the list item with these keys), `v:"a"` (the set item of this value), `i:0` (an index). Below a key, `{}`
means that the path itself is in the set, `{".": {}, ...}` that it and some of its children are, `{...}` that
only children are.

No operation changes its arguments; a result shares their unchanged parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from kapsa.schemas.go_format import format_float, quote

__all__ = [
    "LEAF",
    "Fields",
    "FieldsError",
    "Path",
    "contains",
    "difference",
    "field",
    "from_paths",
    "intersection",
    "item_key",
    "item_value",
    "normalize",
    "ordered",
    "path_text",
    "paths",
    "recursive_difference",
    "union",
]

Fields = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
LEAF: Fields = {}
"""The node of a path that is a member without children. It is shared and must never be changed."""


class FieldsError(ValueError):
    """A fieldsV1 document that is not a set of paths."""


# -- path elements


def field(name: str) -> str:
    return f"f:{name}"


def item_key(keys: dict[str, Any]) -> str:
    """Return the element of an associative list's item, `keys` sorted by name."""
    return "k:{" + ",".join([f'"{name}":{_json(value)}' for name, value in keys.items()]) + "}"


def item_value(value: Any) -> str:
    return f"v:{_json(value)}"


_is_plain = re.compile(r"[\w./:@ -]*", re.ASCII).fullmatch


def _json(value: Any) -> str:
    """Encode compact JSON, with one form per number and Go's escapes for HTML."""
    if type(value) is str and _is_plain(value):
        return f'"{value}"'
    if type(value) is int:
        return str(value)
    if type(value) is float and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = msgspec.json.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=8192)
def _rank(element: str) -> tuple[Any, ...]:
    """Return the sort key of an element: fields, keys, values, indexes, each in its own order."""
    kind, content = element[0], element[2:]
    if kind == "f":
        return (0, content)
    if kind == "k":
        keys = msgspec.json.decode(content)
        return (1, tuple((name, *_rank_value(keys[name])) for name in sorted(keys)))
    if kind == "v":
        return (2, *_rank_value(msgspec.json.decode(content)))
    return (3, int(content)) if kind == "i" else (-1,)


def _rank_value(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (3, str(value))


def _element_text(element: str) -> str:
    kind, content = element[0], element[2:]
    if kind == "f":
        return f".{content}"
    if kind == "k":
        keys = msgspec.json.decode(content)
        return "[" + ",".join(f"{name}={_value_text(keys[name])}" for name in sorted(keys)) + "]"
    if kind == "v":
        return f"[={_value_text(msgspec.json.decode(content))}]"
    return f"[{content}]"


def _value_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    return format_float(value) if isinstance(value, float) else str(value)


def path_text(path: Path) -> str:
    """Format a path for people: `.spec.containers[name="a"].image`."""
    return "".join(map(_element_text, path))


# -- conversion


def from_paths(*names: Path) -> Fields:
    """Return the set of these paths of plain field names."""
    result: Fields = {}
    for path in names:
        node: Fields = LEAF
        for name in reversed(path):
            node = {field(name): node}
        result = union(result, node)
    return result


def normalize(document: Any) -> Fields:
    """Return the canonical form of a client's fieldsV1 document. Raises FieldsError if it is invalid."""
    node = _normalize(document)
    return {key: child for key, child in node.items() if key != SELF}


def _normalize(document: Any) -> Fields:
    if not isinstance(document, dict):
        raise FieldsError(f"expected an object, got {document!r}")
    node: Fields = {}
    for element, child in document.items():
        if element == SELF:
            node[SELF] = LEAF
        elif (canonical := _canonical(element)) is not None:
            node[canonical] = _normalize(child)
    return LEAF if len(node) == 1 and SELF in node else node


def _canonical(element: str) -> str | None:
    """Return the canonical form of an element, None for an unknown kind."""
    if len(element) < 2:
        raise FieldsError(f"a key must be 2 characters long: {element!r}")
    kind, content = element[0], element[2:]
    if element[1] != ":":
        raise FieldsError(f"missing colon: {element}")
    if kind == "f":
        return element
    if kind not in "kvi":
        return None
    try:
        if kind == "i":
            return f"i:{int(content)}"
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError) as error:
        raise FieldsError(f"parsing key {element!r} as path element: {error}") from error
    if kind == "v":
        return item_value(value)
    if not isinstance(value, dict):
        raise FieldsError(f"parsing key {element!r} as path element: not an object")
    return item_key({name: value[name] for name in sorted(value)})


def ordered(fields: Fields) -> Fields:
    """Return the same set in the order in which kube-apiserver writes it."""
    if len(fields) > 1:
        keys: Any = sorted(fields, key=_rank)
    else:
        keys = fields
    return {key: ordered(child) if (child := fields[key]) else LEAF for key in keys}


def paths(fields: Fields, prefix: Path = ()) -> Iterator[Path]:
    """Yield all paths of the set: at each level first those that end there, then those of each child."""
    elements = sorted((key for key in fields if key != SELF), key=_rank)
    for element in elements:
        if _is_member(fields[element]):
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], (*prefix, element))


def contains(fields: Fields, path: Path) -> bool:
    node = fields
    for element in path:
        child = node.get(element)
        if child is None:
            return False
        node = child
    return _is_member(node)


def _is_member(node: Fields) -> bool:
    return not node or SELF in node


# -- algebra


def union(left: Fields, right: Fields) -> Fields:
    """Return the paths of either set."""
    if not left or left is right:
        return right
    return _union(left, right) if right else left


def _union(left: Fields, right: Fields) -> Fields:
    """Return the union of two nodes that are not roots: an empty one is a member."""
    if left is right:
        return left
    if not left:
        return _with_self(right)
    if not right:
        return _with_self(left)
    result = dict(left)
    for key, child in right.items():
        mine = result.get(key)
        result[key] = child if mine is None or key == SELF else _union(mine, child)
    return result


def _with_self(node: Fields) -> Fields:
    return node if not node or SELF in node else {SELF: LEAF, **node}


def difference(left: Fields, right: Fields) -> Fields:
    """Return the paths of `left` that are not in `right`, `left` itself if nothing is removed."""
    if not left or not right:
        return left
    return _difference(left, right) or {}


def _difference(left: Fields, right: Fields) -> Fields | None:
    if not left:
        return None if _is_member(right) else left
    if not right:
        return left if SELF not in left else {key: child for key, child in left.items() if key != SELF}
    result = left
    for key, theirs in right.items():
        mine = left.get(key)
        if mine is None:
            continue
        rest = None if key == SELF else _difference(mine, theirs)
        if rest is mine:
            continue
        if result is left:
            result = dict(left)
        if rest is None:
            del result[key]
        else:
            result[key] = rest
    return _simplified(result)


def _simplified(node: Fields) -> Fields | None:
    """Simplify a node that lost children: to None, to a leaf, or to itself."""
    if not node:
        return None
    return LEAF if len(node) == 1 and SELF in node else node


def recursive_difference(left: Fields, right: Fields) -> Fields:
    """Return the paths of `left` that are neither in `right` nor below a path of it."""
    if not left or not right:
        return left
    return _recursive_difference(left, right) or {}


def _recursive_difference(left: Fields, right: Fields) -> Fields | None:
    result = left
    for key, theirs in right.items():
        mine = left.get(key)
        if mine is None or key == SELF:
            continue
        rest = None if _is_member(theirs) else (_recursive_difference(mine, theirs) if mine else mine)
        if rest is mine:
            continue
        if result is left:
            result = dict(left)
        if rest is None:
            del result[key]
        else:
            result[key] = rest
    return _simplified(result)


def intersection(left: Fields, right: Fields) -> Fields:
    """Return the paths that both sets have."""
    if not left or not right:
        return {}
    return _intersection(left, right) or {}


def _intersection(left: Fields, right: Fields) -> Fields | None:
    if not left:
        return LEAF if _is_member(right) else None
    if not right:
        return LEAF if SELF in left else None
    result: Fields = {}
    for key, mine in left.items():
        theirs = right.get(key)
        if theirs is None:
            continue
        both = LEAF if key == SELF else _intersection(mine, theirs)
        if both is not None:
            result[key] = both
    return _simplified(result)

"""Field paths, as server-side apply writes them in a conflict: a field is located in an object and removed from it.

`.spec.template.spec.containers[name="manager"].image` has a name for each map, and for each list the key of an item, its
value (`[="x"]`) or its position (`[0]`). Names are not quoted, so that one with dots is recognized by the object itself.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["without_field"]

_Selector = Callable[[int, Any], bool]
_decoder = json.JSONDecoder()


def without_field(manifest: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """Return a copy without a field, and without the maps and lists that this empties. None if it has no such field."""
    result = _without(manifest, path)
    return result if isinstance(result, dict) else None


def _without(node: Any, path: str) -> Any:
    if path.startswith(".") and isinstance(node, Mapping):
        return _without_key(node, path[1:])
    if path.startswith("[") and isinstance(node, list):
        return _without_item(node, path)
    return None


def _without_key(node: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    # `a.b` may be one key or two: the longest key that leads to the field is meant.
    for key in sorted(node, key=len, reverse=True):
        rest = path[len(key) :]
        if not path.startswith(key) or rest[:1] not in ("", ".", "["):
            continue
        others = {name: value for name, value in node.items() if name != key}
        if not rest:
            return others
        child = _without(node[key], rest)
        if child is not None:
            return {**node, key: child} if child else others
    return None


def _without_item(node: list[Any], path: str) -> list[Any] | None:
    parsed = _selector(path)
    if parsed is None:
        return None
    matches, rest = parsed
    for position, item in enumerate(node):
        if not matches(position, item):
            continue
        if not rest:
            return [*node[:position], *node[position + 1 :]]
        child = _without(item, rest)
        return None if child is None else [*node[:position], child, *node[position + 1 :]]
    return None


def _selector(path: str) -> tuple[_Selector, str] | None:
    """Return the test for an item that `[…]` at the start of a path stands for, and the rest of the path."""
    end = path.find("]")
    if path[1:end].isdecimal():
        number = int(path[1:end])
        return (lambda position, _: position == number), path[end + 1 :]
    try:
        return _keyed(path)
    except ValueError:
        return None


def _keyed(path: str) -> tuple[_Selector, str]:
    keys: dict[str, Any] = {}
    position = 1
    while True:
        equals = path.index("=", position)
        name = path[position:equals]
        keys[name], position = _decoder.raw_decode(path, equals + 1)
        if path[position : position + 1] != ",":
            break
        position += 1
    if path[position : position + 1] != "]":
        raise ValueError("a selector without an end")
    rest = path[position + 1 :]
    if "" in keys:
        return (lambda _, item: item == keys[""]), rest
    return (lambda _, item: _has_keys(item, keys)), rest


def _has_keys(item: Any, keys: Mapping[str, Any]) -> bool:
    """Return whether an item has these keys. The API server may have set one by default that the item leaves out."""
    if not isinstance(item, Mapping) or not any(name in item for name in keys):
        return False
    return all(item.get(name, value) == value for name, value in keys.items())

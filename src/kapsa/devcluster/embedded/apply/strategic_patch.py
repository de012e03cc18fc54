"""Strategic merge patch: a merge patch in which the schema determines the lists that merge, and their keys.

Directives in the patch: `$patch: delete|replace` in a map or a list item, `$retainKeys`,
`$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`.
"""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.wire.status_errors import StatusError, bad_request
from kapsa.schemas.go_format import format_value, type_name
from kapsa.schemas.schema import Schema

__all__ = ["strategic_merge_patch"]

Map = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_ORDER = "$setElementOrder"


def strategic_merge_patch(doc: Map, patch: Any, schema: Schema | None) -> Map:
    """Return `doc` after a strategic merge patch. Neither argument is changed.

    Raises StatusError where kube-apiserver rejects the patch.
    """
    if schema is None:
        raise bad_request("strategic merge patch format is not supported")
    if patch is None:
        return doc
    if type(patch) is not dict:
        raise bad_request(
            f"json: cannot unmarshal {_kind(patch)} into Go value of type map[string]interface {{}}"
        )
    return _merge_map(doc, patch, schema)


def _failed(message: str) -> StatusError:
    """Return an error that kube-apiserver does not classify: 500 without a reason."""
    return StatusError(500, "", message)


def _rejected() -> StatusError:
    return StatusError(
        422, "Invalid", "the server rejected our request due to an error in our request", details={}
    )


def _bad_format(directive: str) -> StatusError:
    part = {_DELETE_FROM: "primitive list", _ORDER: "setElementOrder list", _RETAIN: "retainKeys"}[directive]
    return bad_request(f"invalid patch format of {part}")


# -- maps


def _merge_map(original: Map, patch: Map, schema: Schema) -> Map:
    if _DIRECTIVE in patch:
        return _replaced_or_deleted(patch)
    result = dict(original)
    rest = dict(patch)
    if _RETAIN in rest:
        result = _retain(result, rest)
    for key in [key for key in rest if key.startswith(_ORDER)]:
        _merge_in_order(result, rest, key, schema)
    for key, value in rest.items():
        if key.startswith(_DELETE_FROM):
            _delete_from_list(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            _merge_field(result, key, value, schema)
    return result


def _replaced_or_deleted(patch: Map) -> Map:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: Any, patch: Map) -> StatusError:
    text = (
        directive if isinstance(directive, str) else f"%!s({_go_type(directive)}={format_value(directive)})"
    )
    return _failed(f"unknown patch type: {text} in map: {format_value(patch)}")


def _merge_field(result: Map, key: str, value: Any, schema: Schema) -> None:
    before = result.get(key)
    if type(before) is dict and type(value) is dict:
        below = _child(schema, key)
        result[key] = value if _strategy(below) == "replace" else _merge_map(before, value, below)
    elif type(before) is list and type(value) is list:
        below = _child(schema, key)
        result[key] = _merge_list(before, value, below) if _strategy(below) == "merge" else value
    else:
        # Taken as a whole: there is nothing of its kind to merge with.
        kept = _without_directives(_without_nulls(value) if type(before) is not type(value) else value)
        if kept is _DROPPED:
            result.pop(key, None)
        else:
            result[key] = kept


def _child(schema: Schema, key: str) -> Schema:
    child = schema.child(key)
    if child is None:
        raise _failed(f'unable to find api field in struct for the json field "{key}"')
    return child


def _strategy(schema: Schema) -> str:
    """Return merge, replace or ""; retainKeys only enables a directive in the patch."""
    names = [name for name in schema.patch_strategy.split(",") if name not in ("", "retainKeys")]
    return names[0] if names else ""


def _retain(original: Map, patch: Map) -> Map:
    """Keep only the keys that the patch lists. Removes the directive from `patch`."""
    keys = patch.pop(_RETAIN)
    if type(keys) is not list:
        raise _bad_format(_RETAIN)
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER)) and key not in keys:
            raise _bad_format(_RETAIN)
    return {key: value for key, value in original.items() if key in keys}


_DROPPED = object()


def _without_directives(value: Any) -> Any:
    if type(value) is dict:
        if _DIRECTIVE in value:
            return _DROPPED
        pairs = ((key, _without_directives(child)) for key, child in value.items())
        return {key: child for key, child in pairs if child is not _DROPPED}
    if type(value) is list:
        return [item for item in map(_without_directives, value) if item is not _DROPPED]
    return value


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if type(value) is list:
        return [_without_nulls(item) for item in value]
    return value


# -- lists


def _target(key: str, directive: str) -> str:
    prefix, slash, name = key.partition("/")
    if prefix != directive or not slash:
        raise _bad_format(directive)
    return name


def _delete_from_list(result: Map, key: str, value: Any) -> None:
    name = _target(key, _DELETE_FROM)
    if value is None:
        result.pop(name, None)
        return
    before = result.get(name)
    if type(before) is not list or type(value) is not list:
        return
    if before or value:
        _element_kind(before, value)
    result[name] = [item for item in before if item not in value]


def _merge_list(original: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    """Merge two lists; the result has the patch's order first, then the live one."""
    if not original and not patch:
        return original
    if _element_kind(original, patch) is not dict:
        merged = _deduplicated([*original, *patch])
        return _in_order(merged, patch, original, "")
    merge_key = schema.patch_merge_key
    if not merge_key:
        kind = schema.items.type if schema.items is not None else ""
        raise _failed(f"cannot merge lists without merge key for {'struct' if kind == 'object' else kind}")
    original, patch = _apply_item_directives(original, patch, merge_key)
    merged = _merge_items(original, patch, merge_key, schema.items or Schema())
    return _in_order(merged, patch, original, merge_key)


def _apply_item_directives(
    original: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    """Return both lists after the `$patch` items of the patch: items deleted, or the whole list replaced."""
    plain: list[Any] = []
    replace = False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive is None:
            plain.append(item)
        elif directive == "delete":
            key = _key_of(item, merge_key)
            original = [other for other in original if not _matches(other, merge_key, key)]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise _failed("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive, item)
    return (plain, []) if replace else (original, plain)


def _merge_items(original: list[Any], patch: list[Any], merge_key: str, schema: Schema) -> list[Any]:
    result = list(original)
    for item in patch:
        key = _key_of(item, merge_key)
        for index, other in enumerate(result):
            if _matches(other, merge_key, key):
                result[index] = _merge_map(other, item, schema)
                break
        else:
            result.append(item)
    return result


def _key_of(item: Any, merge_key: str) -> Any:
    if merge_key not in item:
        raise _failed(f"map: {format_value(item)} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _matches(item: Map, merge_key: str, key: Any) -> bool:
    return merge_key in item and _same(item[merge_key], key)


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _element_kind(*lists: list[Any]) -> type:
    """Return the type that all items have. Raises StatusError if they have several."""
    kinds = {type(item) for items in lists for item in items}
    if not kinds:
        raise _failed("no elements in any of the given slices")
    if list in kinds:
        raise _rejected()
    if len(kinds) > 1:
        shown = "[" + " ".join(map(format_value, lists)) + "]"
        raise _failed(f"list element types are not identical: {shown}")
    return kinds.pop()


def _deduplicated(items: list[Any]) -> list[Any]:
    result: list[Any] = []
    for item in items:
        if item not in result:
            result.append(item)
    return result


# -- order


def _identity(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    if type(item) is not dict:
        raise _failed(f"expected a map[string]interface {{}}, but received a {_go_type(item)}")
    return _key_of(item, merge_key)


def _positions(items: list[Any], merge_key: str) -> dict[Any, int]:
    positions: dict[Any, int] = {}
    for index, item in enumerate(items):
        positions.setdefault(_identity(item, merge_key), index)
    return positions


def _in_order(merged: list[Any], listed: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """Sort `merged`: the items of `listed` in that order, and the others, in live order, between them.

    An item that is not listed precedes the first listed one that followed it in the live list.
    """
    order = _positions(listed, merge_key)
    before = _positions(live, merge_key)
    keyed = [(_identity(item, merge_key), item) for item in merged]
    named = sorted((pair for pair in keyed if pair[0] in order), key=lambda pair: order[pair[0]])
    others = sorted(
        (pair for pair in keyed if pair[0] not in order), key=lambda pair: before.get(pair[0], -1)
    )
    result: list[Any] = []
    index = 0
    for key, item in named:
        here = before.get(key)
        while here is not None and index < len(others) and before.get(others[index][0], here) < here:
            result.append(others[index][1])
            index += 1
        result.append(item)
    return result + [item for _, item in others[index:]]


def _merge_in_order(result: Map, patch: Map, key: str, schema: Schema) -> None:
    """Apply `$setElementOrder` and the list of the patch that it orders. Removes both from `patch`."""
    order = patch.pop(key)
    if type(order) is not list:
        raise _failed(f"expected a []interface {{}}, but received a {_go_type(order)}")
    name = _target(key, _ORDER)
    before, value = result.get(name, _DROPPED), patch.get(name, _DROPPED)
    for items in (before, value):
        if items is not _DROPPED and type(items) is not list:
            raise _failed(f"expected a []interface {{}}, but received a {_go_type(items)}")
    below = _child(schema, name)
    merge_key = below.patch_merge_key
    if type(value) is list:
        _check_order(value, order, merge_key)
    if type(before) is list and type(value) is list:
        merged = _merge_list(before, value, below) if _strategy(below) == "merge" else value
    elif type(value) is list:
        merged = _without_directives(value)
    elif type(before) is list:
        merged = before
    else:
        return
    live = before if type(before) is list else []
    _element_kind(live, value if type(value) is list else [])
    if merge_key and type(value) is list and _strategy(below) == "merge":
        live = _reused(live, value, merge_key)
    result[name] = _in_order(merged, order, live, merge_key)
    patch.pop(name, None)


def _reused(live: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    """Return the live list in the state in which kube-apiserver orders the result.

    It deletes and adds items in the list's own memory, so the slot of a deleted item, which still counts as
    part of the live order, may hold a new one by then.
    """
    cells, size = list(live), len(live)
    for item in patch:
        if item.get(_DIRECTIVE) == "delete":
            kept = [cell for cell in cells[:size] if not _matches(cell, merge_key, item[merge_key])]
            cells[: len(kept)] = kept
            size = len(kept)
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return cells
    for item in patch:
        if size == len(cells):
            break
        present = any(_matches(cell, merge_key, item[merge_key]) for cell in cells[:size])
        if _DIRECTIVE not in item and not present:
            cells[size] = item
            size += 1
    return cells


def _check_order(items: list[Any], order: list[Any], merge_key: str) -> None:
    """Check that the patch's items, except deletions, are in the order list, in its order."""
    if not items or not order:
        return
    named = [item for item in items if not (type(item) is dict and _DIRECTIVE in item)]
    rest = iter(order)
    for item in named:
        identity = _identity(item, merge_key)
        if not any(_same(_identity(other, merge_key), identity) for other in rest):
            raise _failed(
                f"The order in patch list:\n{format_value(items)}\n doesn't match {_ORDER} list:\n{format_value(order)}\n"
            )


_KINDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def _go_type(value: Any) -> str:
    return "%!s(<nil>)" if value is None else type_name(value)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")

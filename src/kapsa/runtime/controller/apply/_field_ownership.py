"""Field ownership: the fields of an object that a manager applied, their values, and their other owners.

The API server records, in `fieldsV1`, the set of fields that each manager owns. Applied to an object it
selects exactly those fields, list items by their keys included. That distinguishes a change of *our* fields
by another manager from the server's defaults, from a status update, and from fields that others added next to
ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

__all__ = [
    "FieldSet",
    "digest",
    "drifted_paths",
    "extracted",
    "held_by_others",
    "holds",
    "managers_of",
    "parse_fields",
    "projection",
]

FieldSet: TypeAlias = Mapping[str, Any]
"""A decoded fieldsV1: `f:name` fields, `k:{...}` list items by key, `v:...` set members, `.` the item."""

_ABSENT = object()
# These identify the object; the server never records them as owned.
_IDENTITY = {"apiVersion", "kind"}
_METADATA_IDENTITY = {"name", "namespace"}


@lru_cache(maxsize=1024)
def parse_fields(raw: bytes) -> FieldSet:
    """Decode a fieldsV1 from JSON. The result is shared between callers: do not change it."""
    decoded: FieldSet = msgspec.json.decode(raw)
    return decoded


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    return msgspec.json.decode(text)


def digest(value: Any) -> bytes:
    """Return a digest of a value: equal values have equal digests."""
    text = value if isinstance(value, bytes) else msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(text, digest_size=16).digest()


def _item(items: Any, key: Mapping[str, Any]) -> Any:
    """Return the list item with this key.

    A key field that the item leaves to the server's default counts as equal.
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        return _ABSENT
    if len(key) == 1:
        return _item_named(items, *next(iter(key.items())))
    loose = _ABSENT
    for item in items:
        if not isinstance(item, Mapping):
            continue
        if all(item.get(name) == value for name, value in key.items()):
            return item
        named = [name for name in key if name in item]
        if named and all(item[name] == key[name] for name in named):
            loose = item
    return loose


def _item_named(items: Sequence[Any], field: str, value: Any) -> Any:
    """Return the list item with this one key field, which cannot be left to a default.

    Fast for long lists.
    """
    for item in items:
        # dict first, here and below: a check for Mapping takes ten times as long.
        if isinstance(item, (dict, Mapping)) and item.get(field) == value:
            return item
    return _ABSENT


def _child(step: str, value: Any) -> Any:
    """Return the part of an object that one step of a field set selects."""
    if step.startswith("f:"):
        return value.get(step[2:], _ABSENT) if isinstance(value, (dict, Mapping)) else _ABSENT
    if step.startswith("k:"):
        return _item(value, _value(step[2:]))
    if step.startswith("v:"):
        member = _value(step[2:])
        return member if isinstance(value, Sequence) and member in value else _ABSENT
    if step.startswith("i:") and isinstance(value, Sequence):
        index = int(step[2:])
        return value[index] if index < len(value) else _ABSENT
    return _ABSENT


def projection(fields: FieldSet, value: Any) -> Any:
    """Return the values of an object in the fields of the set, in a form that can be compared."""
    if not fields:
        return value
    values = {}
    for step, below in fields.items():
        if step == ".":
            continue
        child = _child(step, value)
        if child is not _ABSENT:
            values[step] = projection(below, child)
    return values


def extracted(fields: FieldSet, value: Any) -> Any:
    """Return the part of an object that the set owns, in a form that can be applied again."""
    steps = [step for step in fields if step != "."]
    if not steps:
        # With "." alone, a map or list is owned and nothing of what others have in it.
        return value if not fields or not isinstance(value, (dict, list)) else type(value)()
    parts = [(step, child) for step in steps if (child := _child(step, value)) is not _ABSENT]
    if isinstance(value, Mapping):
        return {step[2:]: extracted(fields[step], child) for step, child in parts}
    items = [(value.index(child), _extracted_item(step, fields[step], child)) for step, child in parts]
    return [item for _, item in sorted(items, key=lambda each: each[0])]


def _extracted_item(step: str, fields: FieldSet, item: Any) -> Any:
    """Return the owned part of a list item, with its key."""
    if not step.startswith("k:"):
        return extracted(fields, item)
    key = {name: item[name] for name in _value(step[2:]) if name in item}
    return {**key, **extracted(fields, item)}


def holds(fields: FieldSet, desired: Any, live: Any) -> bool:
    """Return whether the set owns exactly the desired fields, and each has the desired value.

    False may also mean that the server formats a value differently (`1000m` as `1`). Applying once more
    resolves that.
    """
    return _holds(fields, desired, live, _IDENTITY, top=True)


def _dropped(step: str, desired: Any, live: Any) -> bool:
    """Return whether a desired field is an empty map or list that the server does not store."""
    child = _child(step, desired)
    return isinstance(child, (Mapping, list, tuple)) and not child and _child(step, live) is _ABSENT


def _holds(fields: FieldSet, desired: Any, live: Any, ignored: set[str], *, top: bool = False) -> bool:
    steps = [step for step in fields if step != "."]
    if not steps:
        return bool(desired == live)
    if isinstance(desired, Mapping):
        steps = [step for step in steps if not _dropped(step, desired, live)]
        owned = {step[2:] for step in steps if step.startswith("f:")}
        desired_keys = {key for key in desired if not _dropped(f"f:{key}", desired, live)}
        if owned != desired_keys - ignored or len(owned) != len(steps):
            return False
    elif isinstance(desired, Sequence) and not isinstance(desired, str):
        if len(steps) != len(desired):
            return False
    else:
        return False
    for step in steps:
        desired_child, live_child = _child(step, desired), _child(step, live)
        if desired_child is _ABSENT or live_child is _ABSENT:
            return False
        below = _METADATA_IDENTITY if top and step == "f:metadata" else set[str]()
        if not _holds(fields[step], desired_child, live_child, below):
            return False
    return True


def drifted_paths(fields: FieldSet, desired: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of our fields, such as `.spec.replicas`, that differ from the desired ones."""
    steps = [step for step in fields if step != "."]
    if not steps:
        if desired is not _ABSENT and desired != live:
            yield path
        return
    for step in steps:
        yield from drifted_paths(
            fields[step], _child(step, desired), _child(step, live), f"{path}{_path_segment(step)}"
        )


def _path_segment(step: str) -> str:
    """Return one step in the notation of field paths."""
    if step.startswith("f:"):
        return f".{step[2:]}"
    if step.startswith("k:"):
        return "[" + ",".join(f"{name}={value}" for name, value in _value(step[2:]).items()) + "]"
    return f"[{step[2:]}]"


def _paths(fields: FieldSet, path: str = "") -> Iterator[str]:
    steps = [step for step in fields if step != "."]
    if not steps or "." in fields:
        yield path
    for step in steps:
        yield from _paths(fields[step], f"{path}{_path_segment(step)}")


def managers_of(
    managed_fields: Iterable[Mapping[str, Any]], paths: Sequence[str], *, ours: str
) -> dict[str, list[str]]:
    """Return the managers that own the drifted fields now, with their paths.

    A field that was removed has no owner. Then the manager of the last write is reported.
    """
    others = _others(managed_fields, ours)
    holders: dict[str, list[str]] = {}
    for entry in others:
        owned = set(_paths(entry.get("fieldsV1") or {}))
        if held := [
            path for path in paths if path in owned or any(path.startswith(p + ".") for p in owned if p)
        ]:
            holders.setdefault(str(entry.get("manager")), []).extend(held)
    if not holders and others:
        last = max(others, key=lambda entry: str(entry.get("time") or ""))
        holders[str(last.get("manager"))] = list(paths)
    return holders


def held_by_others(
    managed_fields: Iterable[Mapping[str, Any]], desired: Any, live: Any, *, ours: str
) -> dict[str, list[str]]:
    """Return the managers that own desired fields with another value, with their paths."""
    holders: dict[str, list[str]] = {}
    for entry in _others(managed_fields, ours):
        if (fields := entry.get("fieldsV1")) and (paths := list(drifted_paths(fields, desired, live))):
            holders.setdefault(str(entry.get("manager")), []).extend(paths)
    return holders


def _others(managed_fields: Iterable[Mapping[str, Any]], ours: str) -> list[Mapping[str, Any]]:
    return [
        entry
        for entry in managed_fields
        if entry.get("manager") != ours and entry.get("subresource", "") != "status"
    ]

"""Field ownership: which fields of an object a manager applied, whether they still hold, and who changed them.

The API server writes down, in `fieldsV1`, the set of fields each manager owns. Read against an object it selects
exactly those fields, list items by their keys included: that is what tells a foreign change of *our* fields from the
server's own defaults, from a status update, and from what others added beside us.
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
    "held_by_others",
    "holds",
    "parse_fields",
    "projection",
    "who_changed",
]

FieldSet: TypeAlias = Mapping[str, Any]
"""A decoded fieldsV1: `f:name` fields, `k:{...}` list items by key, `v:...` set members, `.` the item itself."""

_ABSENT = object()
# These say which object it is; the server never counts them as owned.
_IDENTITY = {"apiVersion", "kind"}
_METADATA_IDENTITY = {"name", "namespace"}


@lru_cache(maxsize=1024)
def parse_fields(raw: bytes) -> FieldSet:
    """A fieldsV1 from JSON. Shared by all who ask: do not change it."""
    decoded: FieldSet = msgspec.json.decode(raw)
    return decoded


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    return msgspec.json.decode(text)


def digest(value: Any) -> bytes:
    """A short name for a value: equal values have equal digests."""
    text = value if isinstance(value, bytes) else msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(text, digest_size=16).digest()


def _item(items: Any, key: Mapping[str, Any]) -> Any:
    """The list item with this key. A key field that the item leaves to the server's default counts as equal."""
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
    """The list item with this one key field. Nothing is left to defaults then, and a pod's many variables are found fast."""
    for item in items:
        # dict first, here and below: asking for Mapping takes ten times as long.
        if isinstance(item, (dict, Mapping)) and item.get(field) == value:
            return item
    return _ABSENT


def _child(step: str, value: Any) -> Any:
    """Where one step of a field set leads to in an object."""
    if step.startswith("f:"):
        return value.get(step[2:], _ABSENT) if isinstance(value, (dict, Mapping)) else _ABSENT
    if step.startswith("k:"):
        return _item(value, _value(step[2:]))
    if step.startswith("v:"):
        wanted = _value(step[2:])
        return wanted if isinstance(value, Sequence) and wanted in value else _ABSENT
    if step.startswith("i:") and isinstance(value, Sequence):
        index = int(step[2:])
        return value[index] if index < len(value) else _ABSENT
    return _ABSENT


def projection(fields: FieldSet, value: Any) -> Any:
    """What an object has in the fields of the set, in a form that two projections can be compared in."""
    if not fields:
        return value
    found = {}
    for step, below in fields.items():
        if step == ".":
            continue
        child = _child(step, value)
        if child is not _ABSENT:
            found[step] = projection(below, child)
    return found


def holds(fields: FieldSet, desired: Any, live: Any) -> bool:
    """Whether the set owns exactly the fields that are desired, and each of them has the desired value.

    False may also mean that the server writes a value differently (`1000m` as `1`): then applying once more tells.
    """
    return _holds(fields, desired, live, _IDENTITY, top=True)


def _dropped(step: str, desired: Any, live: Any) -> bool:
    """Whether an empty map or list was asked for, which the server does not keep: its absence is what it comes to."""
    wanted = _child(step, desired)
    return isinstance(wanted, (Mapping, list, tuple)) and not wanted and _child(step, live) is _ABSENT


def _holds(fields: FieldSet, desired: Any, live: Any, ignored: set[str], *, top: bool = False) -> bool:
    steps = [step for step in fields if step != "."]
    if not steps:
        return bool(desired == live)
    if isinstance(desired, Mapping):
        steps = [step for step in steps if not _dropped(step, desired, live)]
        owned = {step[2:] for step in steps if step.startswith("f:")}
        wanted_keys = {key for key in desired if not _dropped(f"f:{key}", desired, live)}
        if owned != wanted_keys - ignored or len(owned) != len(steps):
            return False
    elif isinstance(desired, Sequence) and not isinstance(desired, str):
        if len(steps) != len(desired):
            return False
    else:
        return False
    for step in steps:
        wanted, found = _child(step, desired), _child(step, live)
        if wanted is _ABSENT or found is _ABSENT:
            return False
        below = _METADATA_IDENTITY if top and step == "f:metadata" else set[str]()
        if not _holds(fields[step], wanted, found, below):
            return False
    return True


def drifted_paths(fields: FieldSet, desired: Any, live: Any, path: str = "") -> Iterator[str]:
    """The paths of our fields where the object has something else than we want, as `.spec.replicas`."""
    steps = [step for step in fields if step != "."]
    if not steps:
        if desired is not _ABSENT and desired != live:
            yield path
        return
    for step in steps:
        yield from drifted_paths(
            fields[step], _child(step, desired), _child(step, live), f"{path}{_spelled(step)}"
        )


def _spelled(step: str) -> str:
    """One step as people write it."""
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
        yield from _paths(fields[step], f"{path}{_spelled(step)}")


def who_changed(
    managed_fields: Iterable[Mapping[str, Any]], paths: Sequence[str], *, ours: str
) -> dict[str, list[str]]:
    """Who holds the drifted fields now: manager to paths.

    A field that was removed belongs to nobody. Then the last manager that wrote anything is the one to ask.
    """
    others = _others(managed_fields, ours)
    found: dict[str, list[str]] = {}
    for entry in others:
        owned = set(_paths(entry.get("fieldsV1") or {}))
        if held := [
            path for path in paths if path in owned or any(path.startswith(p + ".") for p in owned if p)
        ]:
            found.setdefault(str(entry.get("manager")), []).extend(held)
    if not found and others:
        last = max(others, key=lambda entry: str(entry.get("time") or ""))
        found[str(last.get("manager"))] = list(paths)
    return found


def held_by_others(
    managed_fields: Iterable[Mapping[str, Any]], desired: Any, live: Any, *, ours: str
) -> dict[str, list[str]]:
    """Who holds desired fields with a value that is not the desired one: manager to paths."""
    found: dict[str, list[str]] = {}
    for entry in _others(managed_fields, ours):
        if (fields := entry.get("fieldsV1")) and (paths := list(drifted_paths(fields, desired, live))):
            found.setdefault(str(entry.get("manager")), []).extend(paths)
    return found


def _others(managed_fields: Iterable[Mapping[str, Any]], ours: str) -> list[Mapping[str, Any]]:
    return [
        entry
        for entry in managed_fields
        if entry.get("manager") != ours and entry.get("subresource", "") != "status"
    ]

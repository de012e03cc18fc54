"""Drift: fields of a release that somebody else has changed since. It is shown, and never corrected by itself.

The API server records who set each field last. A field that the manifest of a release sets, that Helm does not own any
more and that another manager owns, was changed by that manager. No value is compared, since the API server writes many
in another form than a manifest does. A field that a manager shares with Helm has the value of the release.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["DriftReading", "FieldDrift", "changed_fields"]

Tree = Mapping[str, Any]
"""Owned fields as `fieldsV1` has them. An empty map is a field that is owned as a whole."""
_Owned = list[tuple[str, Tree]]
"""Managers, and what each owns at and below one field."""


class FieldDrift(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a live object that is not as its release has it."""

    object: str
    field: str
    """Empty if the object does not exist."""
    manager: str
    """The field manager that changed it; empty if the object does not exist."""


class DriftReading(msgspec.Struct, frozen=True, rename="camel"):
    """The drift of a release at a time."""

    checked_at: datetime
    fields: tuple[FieldDrift, ...] = ()


def changed_fields(manifest: Mapping[str, Any], managed_fields: Any, owner: str) -> Iterator[tuple[str, str]]:
    """Yield path and manager of each field of a manifest that another manager than its owner has changed.

    Nothing is known about an object in which the owner owns nothing: it was installed under another name.
    """
    entries = [(_manager(each), each["fieldsV1"]) for each in _entries(managed_fields)]
    own = [(name, tree) for name, tree in entries if name == owner]
    others = [(name, tree) for name, tree in entries if name != owner]
    if own:
        content = {key: value for key, value in manifest.items() if key != "status"}
        yield from _changed(content, own, others, "")


def _entries(managed_fields: Any) -> Iterator[Mapping[str, Any]]:
    for each in managed_fields if isinstance(managed_fields, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("fieldsV1"), Mapping):
            yield each


def _manager(entry: Mapping[str, Any]) -> str:
    name, subresource = str(entry.get("manager", "")), entry.get("subresource")
    return f"{name} ({subresource})" if subresource else name


def _changed(node: Any, own: _Owned, others: _Owned, path: str) -> Iterator[tuple[str, str]]:
    if node is None or not others or any(not tree for _, tree in own):
        return
    taken_by = next((name for name, tree in others if not tree), None)
    if taken_by is not None:
        yield path, taken_by
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _changed(value, _below(own, f"f:{key}"), _below(others, f"f:{key}"), f"{path}.{key}")
    elif isinstance(node, list):
        for item in node:
            for key in _item_keys((*own, *others), item):
                yield from _changed(item, _below(own, key), _below(others, key), path + _selector(key))


def _below(owned: _Owned, key: str) -> _Owned:
    """Return what is owned at a key."""
    return [(name, tree[key]) for name, tree in owned if isinstance(tree.get(key), Mapping)]


def _item_keys(owned: Iterable[tuple[str, Tree]], item: Any) -> list[str]:
    """Return the keys under which an item of a list is owned: one, unless managers name it differently."""
    keys = dict.fromkeys(key for _, tree in owned for key in tree if _matches(key, item))
    return list(keys)


def _matches(key: str, item: Any) -> bool:
    start, _, text = key.partition(":")
    if start not in ("k", "v"):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if start == "v":
        return bool(value == item)
    # The API server may have set a part of the key by default, such as the protocol of a port.
    return (
        isinstance(value, dict)
        and isinstance(item, Mapping)
        and any(name in item for name in value)
        and all(item.get(name, part) == part for name, part in value.items())
    )


def _selector(key: str) -> str:
    """Return the key of an item as server-side apply writes it in a path."""
    start, _, text = key.partition(":")
    if start == "v":
        return f"[={text}]"
    parts = json.loads(text).items()
    return f"[{','.join(f'{name}={json.dumps(value)}' for name, value in parts)}]"

"""Owned fields: who has set which fields of an object, as the API server records it in `managedFields`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["FieldTree", "OwnedFields", "below", "item_keys", "item_selector", "owned_fields"]

FieldTree = Mapping[str, Any]
"""Fields as `fieldsV1` has them. An empty map is a field that is owned as a whole."""
OwnedFields = list[tuple[str, FieldTree]]
"""Managers, and what each owns at and below one field."""


def owned_fields(managed_fields: Any, owner: str) -> tuple[OwnedFields, OwnedFields]:
    """Return what one manager owns of an object, and what each of the others does."""
    entries = [(_manager(each), each["fieldsV1"]) for each in _entries(managed_fields)]
    own = [(name, tree) for name, tree in entries if name == owner]
    return own, [(name, tree) for name, tree in entries if name != owner]


def _entries(managed_fields: Any) -> Iterator[Mapping[str, Any]]:
    for each in managed_fields if isinstance(managed_fields, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("fieldsV1"), Mapping):
            yield each


def _manager(entry: Mapping[str, Any]) -> str:
    name, subresource = str(entry.get("manager", "")), entry.get("subresource")
    return f"{name} ({subresource})" if subresource else name


def below(owned: OwnedFields, key: str) -> OwnedFields:
    """Return what is owned at a key."""
    return [(name, tree[key]) for name, tree in owned if isinstance(tree.get(key), Mapping)]


def item_keys(owned: Iterable[tuple[str, FieldTree]], item: Any) -> list[str]:
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


def item_selector(key: str) -> str:
    """Return the key of an item as server-side apply writes it in a path."""
    start, _, text = key.partition(":")
    if start == "v":
        return f"[={text}]"
    parts = json.loads(text).items()
    return f"[{','.join(f'{name}={json.dumps(value)}' for name, value in parts)}]"

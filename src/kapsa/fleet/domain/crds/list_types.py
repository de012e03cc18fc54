"""List and map types, judged by what server-side apply does with lists and maps that exist."""

from collections.abc import Iterator

from kapsa.fleet.domain.crds.changes import NodeChange, breaking, warning
from kapsa.fleet.domain.crds.definitions import SchemaNode
from kapsa.fleet.domain.crds.findings import ChangeRule

__all__ = ["list_type_changes"]


def list_type_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    """Yield the changes of list type, map keys and map type. An unset type is atomic for lists, granular for maps."""
    before, after = old.list_type or "atomic", new.list_type or "atomic"
    if before != after:
        yield _list_type_change(before, after)
    elif after == "map" and set(old.map_keys or ()) != set(new.map_keys or ()):
        yield _map_keys_change(set(old.map_keys or ()), set(new.map_keys or ()))
    if (old.map_type or "granular") != (new.map_type or "granular"):
        yield _map_type_change(new.map_type or "granular")


def _list_type_change(before: str, after: str) -> NodeChange:
    text = f"the list became {after}, it was {before}"
    if after == "atomic":
        return breaking(
            ChangeRule.LIST_TYPE_CHANGED,
            f"{text}: managers that each own entries conflict, and a forced apply drops the entries of the others",
        )
    return breaking(
        ChangeRule.LIST_TYPE_CHANGED,
        f"{text}: lists with duplicates are rejected, and entries that exist belong to nobody: an apply without one keeps it",
    )


def _map_keys_change(before: set[str], after: set[str]) -> NodeChange:
    text = f"entries are identified by {', '.join(sorted(after))} now, not by {', '.join(sorted(before))}"
    return breaking(
        ChangeRule.MAP_KEYS_CHANGED,
        f"{text}: entries that exist belong to nobody, so that an apply without one keeps it, and duplicates by the new keys are rejected",
    )


def _map_type_change(after: str) -> NodeChange:
    if after == "atomic":
        text = "the map became atomic: managers that each own keys conflict, and a forced apply drops those of the others"
        return breaking(ChangeRule.MAP_TYPE_CHANGED, text)
    text = "the map became granular: keys that exist belong to nobody, so that others change them without a conflict"
    return warning(ChangeRule.MAP_TYPE_CHANGED, text)

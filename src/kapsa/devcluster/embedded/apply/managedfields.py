"""The entries of metadata.managedFields: the manager of each field, and its last operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from kapsa.devcluster.embedded.apply.comparison import equal
from kapsa.devcluster.embedded.apply.fieldset import Fields, FieldsError, normalize, ordered, union

__all__ = [
    "MAX_UPDATE_ENTRIES",
    "Entry",
    "Managed",
    "ManagedFieldsError",
    "Manager",
    "capped",
    "decode",
    "encode",
    "is_reset",
    "keep_times_of_unchanged",
]

MAX_UPDATE_ENTRIES = 10
"""The maximum of Update entries in an object. Older ones are merged, so random names cannot fill it."""
_ANCIENT = "ancient-changes"


class ManagedFieldsError(ValueError):
    """A managedFields list that the API server could not have written."""


class Manager(NamedTuple):
    """The identity of an entry. An applier has one entry for all versions, so it has no version here."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    @property
    def sort_text(self) -> bytes:
        """The identifier by which kube-apiserver sorts managers: JSON without empty fields."""
        return msgspec.json.encode(
            {
                "manager": self.name,
                "operation": self.operation,
                **({"apiVersion": self.api_version} if self.api_version else {}),
                **({"subresource": self.subresource} if self.subresource else {}),
            }
        )


class Entry(NamedTuple):
    """The fields that a manager owns, the API version of its last write, and the time of its last change."""

    fields: Fields
    api_version: str
    time: str | None


Managed = dict[Manager, Entry]


def decode(entries: Sequence[Any], *, trusted: bool) -> Managed:
    """Return the entries by manager. Entries are validated unless they are `trusted`: written by this server.

    Raises ManagedFieldsError if one is invalid.
    """
    managed: Managed = {}
    for index, entry in enumerate(entries):
        if not trusted:
            _check_entry(entry, index)
        operation, api_version = entry.get("operation"), entry.get("apiVersion", "")
        applied = operation == "Apply"
        manager = Manager(
            entry.get("manager", ""), operation, "" if applied else api_version, entry.get("subresource", "")
        )
        fields = entry.get("fieldsV1") or {}
        if not trusted:
            try:
                fields = normalize(fields)
            except FieldsError as error:
                raise ManagedFieldsError(f"error decoding set: {error}") from error
        managed[manager] = Entry(fields, api_version, entry.get("time"))
    return managed


def _check_entry(entry: Any, index: int) -> None:
    if not isinstance(entry, dict) or entry.get("operation") not in ("Apply", "Update"):
        raise ManagedFieldsError("operation must be `Apply` or `Update`")
    if not entry.get("apiVersion"):
        raise ManagedFieldsError("apiVersion must not be empty")
    kind = entry.get("fieldsType", "")
    if kind != "FieldsV1":
        problem = f'invalid fieldsType "{kind}"' if kind else "missing fieldsType"
        raise ManagedFieldsError(f"{problem} in managed fields entry {index}")


def encode(managed: Managed) -> list[dict[str, Any]]:
    """Return the entries in their wire form: appliers first, then by time, name, version and subresource."""
    entries = sorted(managed.items(), key=_order)
    return [_entry(manager, entry) for manager, entry in entries]


def _order(item: tuple[Manager, Entry]) -> tuple[str, ...]:
    manager, entry = item
    return (manager.operation, entry.time or "", manager.name, entry.api_version, manager.subresource)


def _entry(manager: Manager, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if manager.name:
        result["manager"] = manager.name
    result["operation"] = manager.operation
    result["apiVersion"] = entry.api_version
    if entry.time is not None:
        result["time"] = entry.time
    result["fieldsType"] = "FieldsV1"
    result["fieldsV1"] = entry.fields
    if manager.subresource:
        result["subresource"] = manager.subresource
    return result


def is_reset(entries: Any) -> bool:
    """Return whether a request clears managedFields: with an empty list, or with one empty entry."""
    return entries in ([], [{}])


def capped(managed: Managed) -> Managed:
    """Limit updaters to MAX_UPDATE_ENTRIES: merge the oldest of a version into `ancient-changes`."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    surplus = len(updaters) - MAX_UPDATE_ENTRIES
    if surplus <= 0:
        return managed
    result = dict(managed)
    oldest: dict[str, Manager] = {}
    updaters.sort(key=lambda manager: (managed[manager].time or "", manager.sort_text))
    for manager in updaters:
        if surplus <= 0:
            break
        entry = managed[manager]
        version = entry.api_version
        if version not in oldest:
            oldest[version] = manager
            continue
        bucket = Manager(_ANCIENT, "Update", version)
        before = result[bucket] if bucket in result else result.pop(oldest[version])
        result.pop(manager, None)
        result[bucket] = Entry(ordered(union(entry.fields, before.fields)), version, entry.time)
        surplus -= 1
    return result


def keep_times_of_unchanged(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Restore the old times in managedFields if nothing else differs, so that a no-op write stays one."""
    entries, before = (obj["metadata"].get("managedFields") for obj in (new, old))
    if not entries or not before or len(entries) != len(before) or entries == before:
        return new
    if not all(
        equal(_timeless(mine), _timeless(theirs)) for mine, theirs in zip(entries, before, strict=True)
    ):
        return new
    metadata = {**new["metadata"], "managedFields": before}
    restored = {**new, "metadata": metadata}
    return restored if equal(restored, old) else new


def _timeless(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "time"}

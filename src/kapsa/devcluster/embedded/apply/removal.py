"""Removal of the fields that an applier applied before and leaves out now."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.apply.claims import claimed, with_named_fields
from kapsa.devcluster.embedded.apply.fieldset import Fields, difference, intersection, union
from kapsa.devcluster.embedded.apply.managedfields import Entry, Managed
from kapsa.devcluster.embedded.apply.merge import remove
from kapsa.devcluster.embedded.apply.object_versions import Versions

__all__ = ["without_abandoned"]

Object = dict[str, Any]


def without_abandoned(merged: Object, last: Entry, managed: Managed, versions: Versions) -> Object:
    """Remove from `merged` the fields that the author applied last time only and no other manager owns."""
    there = versions.at(merged, last.api_version)
    if there is None:
        return merged
    whole, shape = there
    former = with_named_fields(last.fields, shape)
    kept = remove(whole, former, shape)
    for version, owned in _owned_by_version(managed, last.api_version):
        kept = _restore_owned(whole, kept, version, owned, last.api_version, versions)
    # Fields that the author never owned stay, even if no manager owns them.
    present = with_named_fields(claimed(whole, shape), shape)
    left = with_named_fields(claimed(kept, shape), shape)
    result = remove(whole, intersection(difference(present, left), former), shape)
    back = versions.between(result, last.api_version, versions.api_version)
    return merged if back is None else back


def _owned_by_version(managed: Managed, first: str) -> list[tuple[str, Fields]]:
    """Return the fields that the managers own together, by their version, `first` ahead of the others."""
    owned: dict[str, Fields] = {}
    for entry in managed.values():
        owned[entry.api_version] = union(owned.get(entry.api_version, {}), entry.fields)
    return sorted(owned.items(), key=lambda item: item[0] != first)


def _restore_owned(
    whole: Object, kept: Object, version: str, owned: Fields, home: str, versions: Versions
) -> Object:
    """Add to `kept` the parts of `whole` that a manager owns in `version`; both are in version `home`."""
    there, left_there = versions.at(whole, version), versions.between(kept, home, version)
    if there is None or left_there is None:
        return kept
    present, left, ours = (
        with_named_fields(fields, there[1])
        for fields in (claimed(there[0], there[1]), claimed(left_there, there[1]), owned)
    )
    restored = remove(there[0], difference(present, union(left, ours)), there[1])
    back = versions.between(restored, version, home)
    return kept if back is None else back

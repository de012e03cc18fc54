"""What an applier gives up: the fields it applied before and leaves out now."""

from __future__ import annotations

from typing import Any

from .fieldset import Fields, difference, intersection, union
from .managedfields import Entry, Managed
from .merging import remove
from .ownership import claimed, with_named_fields
from .versioned import Versions

__all__ = ["without_given_up"]

Object = dict[str, Any]


def without_given_up(merged: Object, last: Entry, managed: Managed, versions: Versions) -> Object:
    """`merged` without what the author applied last time, does not apply now, and nobody else owns."""
    there = versions.at(merged, last.api_version)
    if there is None:
        return merged
    whole, shape = there
    former = with_named_fields(last.fields, shape)
    kept = remove(whole, former, shape)
    for version, owned in _owned_by_version(managed, last.api_version):
        kept = _restore_owned(whole, kept, version, owned, last.api_version, versions)
    # What the author never owned stays, even where nobody owns it.
    present = with_named_fields(claimed(whole, shape), shape)
    left = with_named_fields(claimed(kept, shape), shape)
    result = remove(whole, intersection(difference(present, left), former), shape)
    if last.api_version == versions.api_version or versions.convert is None:
        return result
    back = versions.convert(result, versions.api_version)
    return merged if back is None else back[0]


def _owned_by_version(managed: Managed, first: str) -> list[tuple[str, Fields]]:
    """What all managers own together, by the version they said it in, `first` ahead of the others."""
    owned: dict[str, Fields] = {}
    for entry in managed.values():
        owned[entry.api_version] = union(owned.get(entry.api_version, {}), entry.fields)
    return sorted(owned.items(), key=lambda item: item[0] != first)


def _restore_owned(
    whole: Object, kept: Object, version: str, owned: Fields, home: str, versions: Versions
) -> Object:
    """`kept` plus the parts of `whole` that somebody owns in `version`; both objects are at version `home`."""
    if version != home and versions.convert is not None:
        there = versions.convert(whole, version)
        kept_there = versions.convert(kept, version)
        if there is None or kept_there is None:
            return kept
        restored = _restore_owned(there[0], kept_there[0], version, owned, version, versions)
        back = versions.convert(restored, home)
        return kept if back is None else back[0]
    found = versions.at(whole, version)
    assert found is not None
    shape = found[1]
    present, left, ours = (
        with_named_fields(fields, shape) for fields in (claimed(whole, shape), claimed(kept, shape), owned)
    )
    return remove(whole, difference(present, union(left, ours)), shape)

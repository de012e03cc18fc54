"""Drift: fields of a release that somebody else has changed since. It is shown, and never corrected by itself.

The API server records who set each field last. A field that the manifest of a release sets, that Helm does not own any
more and that another manager owns, was changed by that manager. No value is compared, since the API server writes many
in another form than a manifest does. A field that a manager shares with Helm has the value of the release.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from kapsa.fleet.domain.health.owned_fields import (
    OwnedFields,
    below,
    item_keys,
    item_selector,
    owned_fields,
)

__all__ = ["DriftReading", "FieldDrift", "changed_fields"]


class FieldDrift(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a live object that differs from its release."""

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
    own, others = owned_fields(managed_fields, owner)
    if own:
        content = {key: value for key, value in manifest.items() if key != "status"}
        yield from _changed(content, own, others, "")


def _changed(node: Any, own: OwnedFields, others: OwnedFields, path: str) -> Iterator[tuple[str, str]]:
    if node is None or not others or any(not tree for _, tree in own):
        return
    taken_by = next((name for name, tree in others if not tree), None)
    if taken_by is not None:
        yield path, taken_by
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _changed(value, below(own, f"f:{key}"), below(others, f"f:{key}"), f"{path}.{key}")
    elif isinstance(node, list):
        for item in node:
            for key in item_keys((*own, *others), item):
                yield from _changed(item, below(own, key), below(others, key), path + item_selector(key))

"""Predicates: conditions on a change that decide whether it causes a reconcile.

A predicate is any callable that takes a `Change` and returns a boolean. The ones here compare the old with
the new object; they are true for an object that appears or disappears.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kapsa.runtime.resources.stored_object import Change

__all__ = [
    "Predicate",
    "all_of",
    "annotation_changed",
    "any_of",
    "deletion_requested",
    "generation_changed",
    "label_changed",
    "negate",
    "resource_version_changed",
]

Predicate: TypeAlias = Callable[[Change], bool]
"""A condition on a change: true if it causes a reconcile."""


def generation_changed(change: Change) -> bool:
    """Return whether the spec changed or deletion was requested. Writes to status and metadata do not count.

    For kinds without a generation (ConfigMap, Secret ...) every change counts.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        new.generation == 0
        or old.uid != new.uid
        or old.generation != new.generation
        or old.deletion_timestamp != new.deletion_timestamp
    )


def resource_version_changed(change: Change) -> bool:
    """Return whether anything was written, in contrast to a resync, which repeats the current state."""
    old, new = change.old, change.new
    return old is None or new is None or old.resource_version != new.resource_version


def deletion_requested(change: Change) -> bool:
    """Return whether the object got its deletion timestamp, or is gone."""
    old, new = change.old, change.new
    if new is None:
        return True
    return new.deletion_timestamp is not None and (old is None or old.deletion_timestamp is None)


def label_changed(*names: str) -> Predicate:
    """Return a predicate that is true if one of these labels changed; any if none is named."""

    def changed(change: Change) -> bool:
        old, new = change.old, change.new
        if old is None or new is None:
            return True
        if not names:
            return old.labels != new.labels
        return any(old.labels.get(name) != new.labels.get(name) for name in names)

    return changed


def annotation_changed(*names: str) -> Predicate:
    """Return a predicate that is true if one of these annotations changed; any if none is named."""

    def changed(change: Change) -> bool:
        old, new = change.old, change.new
        if old is None or new is None:
            return True
        before, after = old.annotations(), new.annotations()
        if not names:
            return before != after
        return any(before.get(name) != after.get(name) for name in names)

    return changed


def any_of(*predicates: Predicate) -> Predicate:
    """Return a predicate that is true if at least one of these is."""
    return lambda change: any(predicate(change) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """Return a predicate that is true if all of these are."""
    return lambda change: all(predicate(change) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """Return a predicate that is true if this one is false."""
    return lambda change: not predicate(change)

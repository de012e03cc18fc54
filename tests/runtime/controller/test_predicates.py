"""Predicates: the changes that each is true for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kapsa.runtime import (
    Change,
    all_of,
    annotation_changed,
    any_of,
    deletion_requested,
    generation_changed,
    label_changed,
    negate,
)
from kapsa.runtime.cache.object_parser import ObjectParser
from kapsa.runtime.controller.predicates import Predicate, resource_version_changed
from kapsa.runtime.resources.stored_object import StoredObject

parse = ObjectParser("example.com/v1", "App")


def stored(**metadata: Any) -> StoredObject:
    defaults = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    return parse(msgspec.json.encode({"metadata": {**defaults, **metadata}}))


def change(**metadata: Any) -> Change:
    """Return a change of an object's metadata."""
    return Change(stored(), stored(resourceVersion="2", **metadata))


@pytest.mark.parametrize(
    ("predicate", "metadata", "expected"),
    [
        (generation_changed, {"generation": 2}, True),
        (generation_changed, {"labels": {"a": "b"}}, False),
        (generation_changed, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        (generation_changed, {"uid": "other"}, True),
        (generation_changed, {"generation": 0}, True),
        (deletion_requested, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        (deletion_requested, {"generation": 2}, False),
        (label_changed("tier"), {"labels": {"tier": "gold"}}, True),
        (label_changed("tier"), {"labels": {"other": "x"}}, False),
        (label_changed(), {"labels": {"other": "x"}}, True),
        (annotation_changed("note"), {"annotations": {"note": "hi"}}, True),
        (annotation_changed("note"), {"annotations": {"other": "x"}}, False),
        (annotation_changed(), {"annotations": {"other": "x"}}, True),
        (resource_version_changed, {}, True),
        (any_of(generation_changed, label_changed()), {"labels": {"a": "b"}}, True),
        (all_of(generation_changed, label_changed()), {"labels": {"a": "b"}}, False),
        (negate(generation_changed), {"labels": {"a": "b"}}, True),
        (lambda change: change.new.generation > change.old.generation, {"generation": 2}, True),
    ],
)
def test_a_predicate_is_true_for_its_changes_only(
    predicate: Predicate, metadata: dict[str, Any], expected: bool
) -> None:
    assert predicate(change(**metadata)) is expected


def test_a_change_without_a_new_version_is_not_a_version_change() -> None:
    assert not resource_version_changed(Change(stored(), stored()))


@pytest.mark.parametrize("predicate", [generation_changed, label_changed("a"), annotation_changed("a")])
def test_predicates_are_true_for_objects_that_appear_or_disappear(predicate: Predicate) -> None:
    assert predicate(Change(None, stored()))
    assert predicate(Change(stored(), None))

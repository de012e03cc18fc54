"""Fields of a conflict, removed from a manifest."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.domain.field_paths import without_field


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **container}, {"name": "side", "image": "s"}]}}


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ({"spec": {"replicas": 1, "paused": True}}, ".spec.replicas", {"spec": {"paused": True}}),
        ({"spec": {"replicas": 1}, "kind": "D"}, ".spec.replicas", {"kind": "D"}),
        (pod(image="a"), '.spec.containers[name="main"].image', pod()),
        (
            {"ports": [{"containerPort": 80, "name": "x"}]},
            '.ports[containerPort=80,protocol="TCP"].name',
            {"ports": [{"containerPort": 80}]},
        ),
        ({"finalizers": ["a", "b]c"]}, '.finalizers[="b]c"]', {"finalizers": ["a"]}),
        ({"finalizers": ["a"], "x": 1}, '.finalizers[="a"]', {"x": 1}),
        ({"args": ["a", "b"]}, ".args[1]", {"args": ["a"]}),
        (
            {"labels": {"a.example.com/b.c": "1", "a": "2"}},
            ".labels.a.example.com/b.c",
            {"labels": {"a": "2"}},
        ),
        ({"a": {"b": 1, "c": 2}, "a.b": {"d": 3}}, ".a.b", {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": {"x": 1}, "c": 2}, "a.b": {"d": 3}}, ".a.b.x", {"a": {"c": 2}, "a.b": {"d": 3}}),
    ],
)
def test_a_field_is_removed_and_nothing_else(
    before: dict[str, Any], path: str, after: dict[str, Any]
) -> None:
    assert without_field(before, path) == after


@pytest.mark.parametrize(
    "path",
    [".spec.missing", '.spec.containers[name="x"].image', '.spec.containers[name="main', ".spec[", "", ".", "spec"],
)  # fmt: skip
def test_a_field_that_the_object_does_not_have_is_not_removed(path: str) -> None:
    before = pod(image="a")
    assert without_field(before, path) is None
    assert before == pod(image="a")

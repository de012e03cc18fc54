"""JSON patch and merge patch, with the quirks of the real server."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kapsa.devcluster.embedded.apply.json_patch import MAXIMUM_OPERATIONS, json_patch, merge_patch
from kapsa.devcluster.wire.status_errors import StatusError

DOC: dict[str, Any] = {"a": {"b": [1, 2, {"c": 3}]}, "x/y": 1, "m~n": 2, "n": None}

APPLIES: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("add a member", [{"op": "add", "path": "/z", "value": 1}], {**DOC, "z": 1}),
    (
        "add to the end of a list",
        [{"op": "add", "path": "/a/b/-", "value": 4}],
        {**DOC, "a": {"b": [1, 2, {"c": 3}, 4]}},
    ),
    (
        "insert into a list",
        [{"op": "add", "path": "/a/b/1", "value": 9}],
        {**DOC, "a": {"b": [1, 9, 2, {"c": 3}]}},
    ),
    (
        "a negative index counts from the end",
        [{"op": "add", "path": "/a/b/-1", "value": 9}],
        {**DOC, "a": {"b": [1, 2, {"c": 3}, 9]}},
    ),
    (
        "add without a value adds null",
        [{"op": "add", "path": "/z"}],
        {**DOC, "z": None},
    ),
    ("remove a list item", [{"op": "remove", "path": "/a/b/0"}], {**DOC, "a": {"b": [2, {"c": 3}]}}),
    ("replace deep inside", [{"op": "replace", "path": "/a/b/2/c", "value": 5}], {**DOC, "a": {"b": [1, 2, {"c": 5}]}}),
    ("replace an absent member adds it", [{"op": "replace", "path": "/z", "value": 1}], {**DOC, "z": 1}),
    ("replace the document", [{"op": "replace", "path": "", "value": {"q": 1}}], {"q": 1}),
    ("escaped tokens", [{"op": "remove", "path": "/x~1y"}, {"op": "remove", "path": "/m~0n"}], {"a": DOC["a"], "n": None}),
    ("move", [{"op": "move", "from": "/a/b", "path": "/l"}], {**DOC, "a": {}, "l": DOC["a"]["b"]}),
    ("copy", [{"op": "copy", "from": "/a/b/2", "path": "/l"}], {**DOC, "l": {"c": 3}}),
    ("copy of an absent member is null", [{"op": "copy", "from": "/q", "path": "/l"}], {**DOC, "l": None}),
    ("test passes", [{"op": "test", "path": "/a/b/2", "value": {"c": 3}}], DOC),
    ("test of an absent member for null passes", [{"op": "test", "path": "/q", "value": None}], DOC),
    ("test of the document", [{"op": "test", "path": "", "value": DOC}], DOC),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operations", "expected"), APPLIES, ids=[case[0] for case in APPLIES])
def test_a_json_patch_applies(name: str, operations: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(DOC)
    assert json_patch(DOC, operations) == expected
    assert before == DOC


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/z"},
        {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "z", "value": 1},
        {"op": "add", "path": "/a/b/9", "value": 1},
        {"op": "add", "path": "/a/b/x", "value": 1},
        {"op": "add", "path": "/q/r", "value": 1},
        {"op": "add", "path": "/n/r", "value": 1},
        {"op": "replace", "path": "/a/b/3", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"op": "test", "path": "/x~1y", "value": 1.0},
        {"op": "test", "path": "/x~1y", "value": True},
        {"op": "move", "from": "/q", "path": "/r"},
        {"op": "nonsense", "path": "/a"},
        {"op": "add"},
        {"path": "/a"},
        None,
    ],
)
def test_an_operation_that_does_not_apply_is_unprocessable(operation: dict[str, Any] | None) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(DOC, [operation])
    assert (caught.value.code, caught.value.reason, caught.value.details) == (422, "Invalid", {})
    assert caught.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ({}, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ("x", "json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"),
        ([1], "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    ],
)
def test_an_invalid_json_patch_is_a_bad_request(operations: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(DOC, operations)
    assert (caught.value.code, caught.value.message) == (400, f"error decoding patch: {message}")


def test_too_many_operations_are_too_large() -> None:
    operations = [{"op": "test", "path": "/n", "value": None}] * (MAXIMUM_OPERATIONS + 1)
    with pytest.raises(
        StatusError, match="allowed maximum operations in a JSON patch is 10000, got 10001"
    ) as caught:
        json_patch(DOC, operations)
    assert caught.value.code == 413


MERGES: list[tuple[str, Any, Any, Any]] = [
    ("a member changes", {"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
    ("null removes", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ("null for what is absent does nothing", {"b": 2}, {"a": None}, {"b": 2}),
    ("objects merge", {"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
    ("lists are replaced", {"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ("nulls in a new object vanish", {}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
    ("an object replaces a scalar", {"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ("a scalar replaces an object", {"a": {"b": 1}}, {"a": 1}, {"a": 1}),
    ("null items of a list stay", {"a": 1}, {"a": [None, 1]}, {"a": [None, 1]}),
    ("nulls inside items of a new list vanish", {}, {"a": [{"b": None}]}, {"a": [{}]}),
    ("but stay in a list that replaces an object", {"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ("a null member counts as absent", {"a": None}, {"a": {"b": None}}, {"a": {}}),
]


@pytest.mark.parametrize(("name", "doc", "patch", "expected"), MERGES, ids=[case[0] for case in MERGES])
def test_a_merge_patch(name: str, doc: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((doc, patch))
    assert merge_patch(doc, patch) == expected
    assert (doc, patch) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        (
            [],
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            1,
            "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
    ],
)
def test_an_invalid_merge_patch_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        merge_patch({}, patch)
    assert (caught.value.code, caught.value.message) == (400, message)

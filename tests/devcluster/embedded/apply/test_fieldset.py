"""Sets of field paths in their FieldsV1 form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.devcluster.embedded.apply import fieldset
from kapsa.devcluster.embedded.apply.fieldset import (
    FieldsError,
    contains,
    difference,
    from_paths,
    intersection,
    normalize,
    ordered,
    path_text,
    paths,
    recursive_difference,
    union,
)

names = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"t"', "i:0"])
path_sets = st.sets(st.lists(names, min_size=1, max_size=3).map(tuple), max_size=8)


def trie(members: set[tuple[str, ...]]) -> dict[str, Any]:
    """Build a set path by path, with union alone."""
    result: dict[str, Any] = {}
    for path in members:
        node: dict[str, Any] = {}
        for element in reversed(path):
            node = {element: node}
        result = union(result, node)
    return result


@given(path_sets)
def test_a_set_has_exactly_the_paths_it_was_made_of(members: set[tuple[str, ...]]) -> None:
    assert set(paths(trie(members))) == members
    assert all(contains(trie(members), path) for path in members)


@given(path_sets, path_sets)
def test_the_algebra_is_that_of_sets_of_paths(
    left: set[tuple[str, ...]], right: set[tuple[str, ...]]
) -> None:
    a, b = trie(left), trie(right)
    assert set(paths(union(a, b))) == left | right
    assert set(paths(difference(a, b))) == left - right
    assert set(paths(intersection(a, b))) == left & right
    assert set(paths(recursive_difference(a, b))) == {
        path for path in left if not any(path[: len(prefix)] == prefix for prefix in right)
    }
    assert a == trie(left)
    assert b == trie(right)


@given(path_sets, path_sets)
def test_a_set_has_only_one_form(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    for result in (
        union(trie(left), trie(right)),
        difference(trie(left), trie(right)),
        intersection(trie(left), trie(right)),
        recursive_difference(trie(left), trie(right)),
    ):
        assert normalize(result) == result


@given(path_sets, path_sets)
def test_a_difference_that_removes_nothing_is_the_same_object(
    left: set[tuple[str, ...]], right: set[tuple[str, ...]]
) -> None:
    fields = trie(left)
    assert (difference(fields, trie(right)) is fields) == (not left & right)


def test_elements_are_ordered_as_fields_keys_values_and_indexes() -> None:
    fields: dict[str, Any] = {
        "i:10": {},
        "i:9": {},
        "v:true": {},
        'v:"b"': {},
        "v:10": {},
        "v:9": {},
        'k:{"port":443}': {},
        'k:{"port":80}': {},
        "f:b": {"f:z": {}, ".": {}, "f:a": {}},
        "f:a": {},
    }
    assert json.dumps(ordered(fields)) == json.dumps(
        {
            "f:a": {},
            "f:b": {".": {}, "f:a": {}, "f:z": {}},
            'k:{"port":80}': {},
            'k:{"port":443}': {},
            "v:9": {},
            "v:10": {},
            'v:"b"': {},
            "v:true": {},
            "i:9": {},
            "i:10": {},
        }
    )


def test_paths_of_one_level_come_before_those_below() -> None:
    fields: dict[str, Any] = {"f:a": {"f:z": {}}, "f:b": {}, "f:c": {".": {}, "f:d": {}}}
    assert [path_text(path) for path in paths(fields)] == [".b", ".c", ".a.z", ".c.d"]


def test_a_path_is_formatted_for_people() -> None:
    path = ("f:spec", 'k:{"name":"a\\"b","port":80}', 'v:"x"', "i:3", "v:1.5")
    assert path_text(path) == '.spec[name="a\\"b",port=80][="x"][3][=1.5]'


def test_a_number_has_only_one_form() -> None:
    assert fieldset.item_value(1.0) == fieldset.item_value(1) == "v:1"
    assert fieldset.item_key({"port": 80.0}) == 'k:{"port":80}'


def test_html_in_a_list_item_is_escaped_as_go_does() -> None:
    assert fieldset.item_value("<a&b>") == 'v:"\\u003ca\\u0026b\\u003e"'


def test_sets_can_be_made_from_plain_paths() -> None:
    assert from_paths(("a",), ("b", "c"), ("b",)) == {"f:a": {}, "f:b": {".": {}, "f:c": {}}}


@pytest.mark.parametrize(
    "document",
    [[], {"spec": {}}, {"f": {}}, {"k:{": {}}, {"k:[]": {}}, {"i:x": {}}, {"f:a": 1}, {"v:": {}}],
)
def test_an_invalid_set_is_rejected(document: Any) -> None:
    with pytest.raises(FieldsError):
        normalize(document)


def test_normalization_drops_unknown_elements_and_redundant_dots() -> None:
    document: dict[str, Any] = {"f:a": {".": {}}, "x:b": {}, ".": {}, 'k:{"b":1,"a":2}': {}}
    assert normalize(document) == {"f:a": {}, 'k:{"a":2,"b":1}': {}}

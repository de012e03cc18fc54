"""Values: merged as Helm merges them, masked, and hashed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.fleet.domain.values import MASK, canonical_json, leaf_paths, masked, merge_values, values_digest

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.lists(st.integers(0, 3), max_size=2)
)
VALUES = st.recursive(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), LEAVES, max_size=3),
    lambda inner: st.dictionaries(
        st.text("abc", min_size=1, max_size=2), st.one_of(LEAVES, inner), max_size=3
    ),
    max_leaves=8,
)


def test_later_layers_win_key_by_key() -> None:
    operator = {"image": {"tag": "1", "pull": "Always"}, "replicas": 1}
    merged = merge_values(operator, {"replicas": 2}, {"image": {"tag": "2"}}, {"extra": [1]})
    assert merged == {"image": {"tag": "2", "pull": "Always"}, "replicas": 2, "extra": [1]}


def test_lists_are_replaced_and_not_appended() -> None:
    assert merge_values({"args": [1, 2]}, {"args": [3]}) == {"args": [3]}


def test_a_null_stays_so_that_helm_removes_the_default_of_the_chart() -> None:
    assert merge_values({"probe": {"path": "/"}}, {"probe": None}) == {"probe": None}
    assert merge_values({"probe": None}, {"probe": {"path": "/"}}) == {"probe": {"path": "/"}}


@given(VALUES, VALUES, VALUES)
def test_merging_is_associative_and_changes_no_layer(a, b, c) -> None:
    before = [canonical_json(each) for each in (a, b, c)]
    assert merge_values(merge_values(a, b), c) == merge_values(a, b, c)
    assert [canonical_json(each) for each in (a, b, c)] == before


def test_secret_values_are_masked_and_others_are_not() -> None:
    secret = {"db": {"password": "hunter2"}, "keys": ["k1"]}
    merged = merge_values({"db": {"user": "app"}}, secret)
    shown = masked(merged, leaf_paths(secret))
    assert shown == {"db": {"user": "app", "password": MASK}, "keys": MASK}


def test_a_secret_path_above_a_map_masks_the_whole_map() -> None:
    assert masked({"tls": {"key": "k"}}, frozenset({("tls",)})) == {"tls": MASK}


@given(VALUES)
def test_every_leaf_of_a_secret_layer_is_masked(layer) -> None:
    assert leaf_paths(layer) == leaf_paths(masked(layer, leaf_paths(layer)))
    assert all(_at(masked(layer, leaf_paths(layer)), path) == MASK for path in leaf_paths(layer))


def _at(values, path):
    for key in path:
        values = values[key]
    return values


def test_the_digest_changes_with_a_secret_value_and_does_not_contain_it() -> None:
    paths = frozenset({("password",)})
    one, two = (values_digest({"password": each}, paths) for each in ("hunter2", "hunter3"))
    assert one != two
    assert one != values_digest({"password": "hunter2"}, frozenset())


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert values_digest({"a": 1, "b": 2}, frozenset()) == values_digest({"b": 2, "a": 1}, frozenset())


def test_a_number_that_json_cannot_write_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": float("nan")})

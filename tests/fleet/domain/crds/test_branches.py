"""Branches: which accept more, and a bound on the search for an answer."""

from __future__ import annotations

import time

import pytest

from kapsa.fleet.domain.errors import InvalidInput
from tests.fleet.domain.crds.resources import BREAKING, SAFE, Raw, compare, field_of, object_of, severity

STRING = {"type": "string"}
FIELDS = {"a": STRING, "b": STRING, "c": {"type": "array", "items": STRING}}


def nested(depth: int, width: int, leaf: int) -> Raw:
    """Return branches of branches."""
    if depth == 0:
        return {"maxLength": leaf}
    return {"anyOf": [nested(depth - 1, width, leaf + index) for index in range(width)]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"anyOf": [{"required": ["a"]}]}, {"anyOf": [{"required": ["b"]}, {"required": ["a"]}]}),
        ({"anyOf": [{"required": ["a", "b"]}]}, {"anyOf": [{"required": ["a"]}]}),
        ({"anyOf": [{"required": ["a"]}]}, {"anyOf": [{}]}),
        ({"allOf": [{"required": ["a", "b"]}]}, {"allOf": [{"required": ["b"]}]}),
        (
            {"allOf": [{"anyOf": [{"required": ["a"]}]}]},
            {"allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]},
        ),
        (
            {"allOf": [{"properties": {"a": {"maxLength": 3}}}]},
            {"allOf": [{"properties": {"a": {"maxLength": 4}}}]},
        ),
        (
            {"allOf": [{"properties": {"c": {"items": {"enum": ["x"]}}}}]},
            {"allOf": [{"properties": {"c": {"items": {"enum": ["x", "y"]}}}}]},
        ),
        ({"not": {"required": ["a"]}}, {"not": {"required": ["a", "b"]}}),
    ],
)
def test_a_wider_branch_is_safe_and_the_way_back_is_not(old: Raw, new: Raw) -> None:
    assert severity(field_of(object_of(FIELDS, **old)), field_of(object_of(FIELDS, **new))) is SAFE
    assert severity(field_of(object_of(FIELDS, **new)), field_of(object_of(FIELDS, **old))) is BREAKING


def test_a_branch_in_another_form_is_judged_on_the_careful_side() -> None:
    either = {"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}
    old, new = object_of(FIELDS, **either), object_of(FIELDS, **{"not": {"required": ["a"]}})
    assert severity(field_of(old), field_of(new)) is BREAKING


def test_a_type_below_a_branch_counts() -> None:
    old = field_of({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"maxLength": 3}]})
    new = field_of({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}]})
    assert severity(old, new) is BREAKING
    wider = field_of({"x-kubernetes-int-or-string": True, "anyOf": [{"maxLength": 3}]})
    assert severity(old, wider) is SAFE  # a length says nothing about numbers


@pytest.mark.long
def test_branches_of_branches_are_compared_in_bounded_time() -> None:
    old = field_of({**STRING, **nested(5, 8, 5)})
    new = field_of({**STRING, **nested(5, 8, 3)})
    started = time.thread_time()
    assert severity(old, new) is BREAKING
    assert time.thread_time() - started < 5


def test_branches_that_are_nested_without_end_are_refused() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        compare(field_of({**STRING, **nested(200, 1, 5)}), field_of({**STRING, **nested(200, 1, 3)}))

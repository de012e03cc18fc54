"""The table of changes: each row in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.domain.crds import ChangeSeverity
from tests.fleet.domain.crds.resources import (
    BREAKING,
    SAFE,
    WARNING,
    Raw,
    compare,
    field_of,
    object_of,
    resource,
    rules,
    severity,
)

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
ANY = {"x-kubernetes-preserve-unknown-fields": True}
LIST = {"type": "array", "items": STRING}
MAP = {"type": "object", "additionalProperties": STRING}
KEYED_ITEMS = object_of({"a": STRING, "b": STRING}, required=["a", "b"])


def keyed(*keys: str) -> Raw:
    return {
        "type": "array",
        "items": KEYED_ITEMS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


TYPES: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("integer and number", INTEGER, NUMBER, WARNING, BREAKING),
    ("integer and int-or-string", INTEGER, INT_OR_STRING, WARNING, BREAKING),
    ("string and int-or-string", STRING, INT_OR_STRING, WARNING, BREAKING),
    ("string and integer", STRING, INTEGER, BREAKING, BREAKING),
    ("object and string", object_of({}), STRING, BREAKING, BREAKING),
    ("list and string", LIST, STRING, BREAKING, BREAKING),
    ("string and anything", STRING, ANY, WARNING, BREAKING),
]
"""Name, one schema of a field, another, the severity of the way there, and of the way back."""

FACETS: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("enum", STRING, {**STRING, "enum": ["a", "b"]}, BREAKING, SAFE),
    ("value of an enum", {**STRING, "enum": ["a"]}, {**STRING, "enum": ["a", "b"]}, WARNING, BREAKING),
    ("other enum", {**STRING, "enum": ["a"]}, {**STRING, "enum": ["b"]}, BREAKING, BREAKING),
    ("minLength", STRING, {**STRING, "minLength": 1}, BREAKING, SAFE),
    ("higher minLength", {**STRING, "minLength": 1}, {**STRING, "minLength": 2}, BREAKING, SAFE),
    ("maxLength", STRING, {**STRING, "maxLength": 9}, BREAKING, SAFE),
    ("lower maxLength", {**STRING, "maxLength": 9}, {**STRING, "maxLength": 8}, BREAKING, SAFE),
    ("minItems", LIST, {**LIST, "minItems": 1}, BREAKING, SAFE),
    ("maxItems", LIST, {**LIST, "maxItems": 4}, BREAKING, SAFE),
    ("lower maxItems", {**LIST, "maxItems": 5}, {**LIST, "maxItems": 4}, BREAKING, SAFE),
    ("uniqueItems", LIST, {**LIST, "uniqueItems": True}, BREAKING, SAFE),
    ("minProperties", MAP, {**MAP, "minProperties": 1}, BREAKING, SAFE),
    ("maxProperties", MAP, {**MAP, "maxProperties": 3}, BREAKING, SAFE),
    ("minimum", INTEGER, {**INTEGER, "minimum": 0}, BREAKING, SAFE),
    ("higher minimum", {**INTEGER, "minimum": 0}, {**INTEGER, "minimum": 1}, BREAKING, SAFE),
    ("maximum", INTEGER, {**INTEGER, "maximum": 10}, BREAKING, SAFE),
    ("lower maximum", {**INTEGER, "maximum": 10}, {**INTEGER, "maximum": 9}, BREAKING, SAFE),
    ("negative minimum", {**INTEGER, "minimum": -5}, {**INTEGER, "minimum": -1}, BREAKING, SAFE),
    (
        "exclusive minimum",
        {**NUMBER, "minimum": 0},
        {**NUMBER, "minimum": 0, "exclusiveMinimum": True},
        BREAKING,
        SAFE,
    ),
    (
        "exclusive maximum",
        {**NUMBER, "maximum": 1},
        {**NUMBER, "maximum": 1, "exclusiveMaximum": True},
        BREAKING,
        SAFE,
    ),
    ("multipleOf", INTEGER, {**INTEGER, "multipleOf": 2}, BREAKING, SAFE),
    ("multiple of multipleOf", {**INTEGER, "multipleOf": 2}, {**INTEGER, "multipleOf": 4}, BREAKING, SAFE),
    ("fraction of multipleOf", {**NUMBER, "multipleOf": 0.1}, {**NUMBER, "multipleOf": 0.5}, BREAKING, SAFE),
    ("other multipleOf", {**INTEGER, "multipleOf": 2}, {**INTEGER, "multipleOf": 3}, BREAKING, BREAKING),
    ("pattern", STRING, {**STRING, "pattern": "^a"}, BREAKING, SAFE),
    ("other pattern", {**STRING, "pattern": "^a"}, {**STRING, "pattern": "^b"}, BREAKING, BREAKING),
    ("format", STRING, {**STRING, "format": "date-time"}, BREAKING, SAFE),
    ("other format", {**STRING, "format": "ipv4"}, {**STRING, "format": "ipv6"}, BREAKING, BREAKING),
    ("int32", INTEGER, {**INTEGER, "format": "int32"}, BREAKING, SAFE),
    ("int32 for int64", {**INTEGER, "format": "int64"}, {**INTEGER, "format": "int32"}, BREAKING, SAFE),
    ("nullable", {**STRING, "nullable": True}, STRING, BREAKING, SAFE),
]

DEFAULTS: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("default", STRING, {**STRING, "default": "a"}, WARNING, WARNING),
    ("other default", {**STRING, "default": "a"}, {**STRING, "default": "b"}, WARNING, WARNING),
]

PARTS: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("field", object_of({}), object_of({"a": STRING}), SAFE, BREAKING),
    ("unknown fields", object_of({}), {**object_of({}), **ANY}, SAFE, BREAKING),
    ("field of a map", MAP, {**MAP, "additionalProperties": {**STRING, "maxLength": 3}}, BREAKING, SAFE),
    ("item of a list", LIST, {**LIST, "items": {**STRING, "maxLength": 3}}, BREAKING, SAFE),
    ("closed map", MAP, object_of({"a": STRING}), BREAKING, SAFE),
    ("map of anything", MAP, {"type": "object", "additionalProperties": True}, WARNING, BREAKING),
    ("map and open object", MAP, {**object_of({}), **ANY}, SAFE, BREAKING),
    ("required", object_of({"a": STRING}), object_of({"a": STRING}, required=["a"]), BREAKING, SAFE),
    (
        "field below a new optional object",
        object_of({}),
        object_of({"a": object_of({"b": STRING}, required=["b"])}),
        SAFE,
        BREAKING,
    ),
    (
        "field of an open object",
        {**object_of({}), **ANY},
        {**object_of({"a": STRING}), **ANY},
        BREAKING,
        SAFE,
    ),
    (
        "open field of an open object",
        {**object_of({}), **ANY},
        {**object_of({"a": ANY}), **ANY},
        WARNING,
        SAFE,
    ),
    (
        "embedded resource",
        {**object_of({}), **ANY},
        {**object_of({}), **ANY, "x-kubernetes-embedded-resource": True},
        BREAKING,
        SAFE,
    ),
]

BRANCHES: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("allOf", STRING, {**STRING, "allOf": [{"minLength": 1}]}, BREAKING, SAFE),
    ("anyOf", STRING, {**STRING, "anyOf": [{"minLength": 1}, {"pattern": "a"}]}, BREAKING, SAFE),
    (
        "branch of anyOf",
        {**STRING, "anyOf": [{"pattern": "a"}]},
        {**STRING, "anyOf": [{"pattern": "a"}, {"pattern": "b"}]},
        SAFE,
        BREAKING,
    ),
    (
        "wider branch of anyOf",
        {**STRING, "anyOf": [{"maxLength": 3}]},
        {**STRING, "anyOf": [{"maxLength": 5}]},
        SAFE,
        BREAKING,
    ),
    ("oneOf", STRING, {**STRING, "oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, BREAKING, SAFE),
    (
        "branch of oneOf",
        {**STRING, "oneOf": [{"pattern": "a"}]},
        {**STRING, "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
        BREAKING,
        BREAKING,
    ),
    (
        "copied branch of oneOf",
        {**STRING, "oneOf": [{"pattern": "a"}]},
        {**STRING, "oneOf": [{"pattern": "a"}, {"pattern": "a"}]},
        BREAKING,
        BREAKING,
    ),
    ("not", STRING, {**STRING, "not": {"pattern": "a"}}, BREAKING, SAFE),
    ("longer not", {**STRING, "not": {"minLength": 3}}, {**STRING, "not": {"minLength": 5}}, SAFE, BREAKING),
    (
        "required below anyOf",
        object_of({"a": STRING, "b": STRING}, anyOf=[{"required": ["a"]}]),
        object_of({"a": STRING, "b": STRING}, anyOf=[{"required": ["a", "b"]}]),
        BREAKING,
        SAFE,
    ),
    (
        "bound below allOf",
        object_of({"a": LIST}, allOf=[{"properties": {"a": {"items": {"maxLength": 5}}}}]),
        object_of({"a": LIST}, allOf=[{"properties": {"a": {"items": {"maxLength": 4}}}}]),
        BREAKING,
        SAFE,
    ),
]

RULES: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("rule", STRING, {**STRING, "x-kubernetes-validations": [{"rule": "self != ''"}]}, BREAKING, SAFE),
    (
        "other rule",
        {**STRING, "x-kubernetes-validations": [{"rule": "self != ''"}]},
        {**STRING, "x-kubernetes-validations": [{"rule": "self != 'a'"}]},
        BREAKING,
        BREAKING,
    ),
    (
        "transition rule",
        STRING,
        {**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        WARNING,
        SAFE,
    ),
    (
        "transition rule that also runs on creation",
        STRING,
        {
            **STRING,
            "x-kubernetes-validations": [{"rule": "self == oldSelf.orValue('a')", "optionalOldSelf": True}],
        },
        BREAKING,
        SAFE,
    ),
]

LIST_TYPES: list[tuple[str, Raw, Raw, ChangeSeverity, ChangeSeverity]] = [
    ("set", LIST, {**LIST, "x-kubernetes-list-type": "set"}, BREAKING, BREAKING),
    ("map of a list", {"type": "array", "items": KEYED_ITEMS}, keyed("a"), BREAKING, BREAKING),
    ("keys", keyed("a"), keyed("a", "b"), BREAKING, BREAKING),
    (
        "atomic map",
        object_of({"a": STRING}),
        object_of({"a": STRING}, **{"x-kubernetes-map-type": "atomic"}),
        BREAKING,
        WARNING,
    ),
]

ROWS = [*TYPES, *FACETS, *DEFAULTS, *PARTS, *BRANCHES, *RULES, *LIST_TYPES]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_change_has_the_severity_of_the_table_in_both_directions(row: Any) -> None:
    _, old, new, there, back = row
    assert severity(field_of(old), field_of(new)) is there
    assert severity(field_of(new), field_of(old)) is back


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_change_below_status_alone_is_a_warning_at_most(row: Any) -> None:
    _, old, new, there, back = row
    before = resource(status=object_of({"field": old}))
    after = resource(status=object_of({"field": new}))
    softened = {BREAKING: WARNING, WARNING: WARNING, SAFE: SAFE}
    assert severity(before, after) is softened[there]
    assert severity(after, before) is softened[back]


EQUIVALENT = [
    ("minItems 0", LIST, {**LIST, "minItems": 0}),
    ("minLength 0", STRING, {**STRING, "minLength": 0}),
    ("minProperties 0", MAP, {**MAP, "minProperties": 0}),
    ("a bound of another type", LIST, {**LIST, "minLength": 3, "maximum": 4, "pattern": "a"}),
    ("int64", INTEGER, {**INTEGER, "format": "int64"}),
    ("a format that nobody checks", STRING, {**STRING, "format": "quantity"}),
    ("the format password", STRING, {**STRING, "format": "password"}),
    ("a format of another type", INTEGER, {**INTEGER, "format": "date"}),
    ("float and double", {**NUMBER, "format": "float"}, {**NUMBER, "format": "double"}),
    (
        "int32's own bounds",
        {**INTEGER, "format": "int32"},
        {**INTEGER, "minimum": -(2**31), "maximum": 2**31 - 1},
    ),
    (
        "an exclusive bound of an integer",
        {**INTEGER, "minimum": 1},
        {**INTEGER, "minimum": 0, "exclusiveMinimum": True},
    ),
    ("a reordered enum", {**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["b", "a"]}),
    (
        "reordered required",
        object_of({"a": STRING, "b": STRING}, required=["a", "b"]),
        object_of({"a": STRING, "b": STRING}, required=["b", "a"]),
    ),
    (
        "reordered oneOf",
        {**STRING, "oneOf": [{"pattern": "a"}, {"enum": ["b", "c"]}]},
        {**STRING, "oneOf": [{"enum": ["c", "b"]}, {"pattern": "a"}]},
    ),
    (
        "required reordered below oneOf",
        object_of({"a": STRING, "b": STRING}, oneOf=[{"required": ["a", "b"]}]),
        object_of({"a": STRING, "b": STRING}, oneOf=[{"required": ["b", "a"]}]),
    ),
    ("a list that is atomic by name", LIST, {**LIST, "x-kubernetes-list-type": "atomic"}),
    ("a map that is granular by name", MAP, {**MAP, "x-kubernetes-map-type": "granular"}),
    (
        "the branches of int-or-string",
        INT_OR_STRING,
        {**INT_OR_STRING, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    ),
    (
        "the branches of int-or-string below allOf",
        INT_OR_STRING,
        {**INT_OR_STRING, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
    ),
    ("a description", STRING, {**STRING, "description": "words", "title": "T", "example": "e"}),
    (
        "a default of objects written otherwise",
        {**ANY, "default": {"a": [1.0]}},
        {**ANY, "default": {"a": [1]}},
    ),
    ("a default written otherwise", {**NUMBER, "default": 1}, {**NUMBER, "default": 1.0}),
    (
        "a rule in another layout",
        {**STRING, "x-kubernetes-validations": [{"rule": "self != 'a' && size(self) < 3"}]},
        {
            **STRING,
            "x-kubernetes-validations": [{"rule": 'self!="a"  // no a\n && size( self )<3', "message": "m"}],
        },
    ),
]


@pytest.mark.parametrize(("name", "old", "new"), EQUIVALENT, ids=[row[0] for row in EQUIVALENT])
def test_a_change_that_changes_nothing_has_no_finding(name: str, old: Raw, new: Raw) -> None:
    assert compare(field_of(old), field_of(new)) == []
    assert compare(field_of(new), field_of(old)) == []


def test_a_required_field_is_safe_if_its_default_is_filled_in() -> None:
    field = {**STRING, "default": "a"}
    assert severity(field_of(field), field_of(field, required=["field"])) is SAFE


def test_a_required_field_with_a_new_default_is_a_warning_for_the_default() -> None:
    findings = compare(field_of(STRING), field_of({**STRING, "default": "a"}, required=["field"]))
    assert rules(findings) == ["warning default-added spec.field"]


def test_a_removed_default_is_breaking_if_required_relies_on_it() -> None:
    old = field_of({**STRING, "default": "a"}, required=["field"])
    assert rules(compare(old, field_of(STRING, required=["field"]))) == [
        "breaking default-removed spec.field"
    ]


def test_a_required_field_of_an_optional_object_that_exists_is_breaking() -> None:
    old = field_of(object_of({"a": STRING}))
    new = field_of(object_of({"a": STRING}, required=["a"]))
    assert rules(compare(old, new)) == ["breaking required-added spec.field.a"]


def test_the_type_and_metadata_of_a_resource_need_not_be_declared() -> None:
    metadata = {"type": "object"}
    declared = resource({}, apiVersion=STRING, kind=STRING, metadata=metadata)
    assert compare(resource({}), {**declared, "required": ["apiVersion", "metadata"]}) == []
    assert compare({**declared, "required": ["kind"]}, resource({})) == []


def test_a_restricted_name_is_breaking() -> None:
    new = resource(metadata=object_of({"name": {**STRING, "maxLength": 20}}))
    assert rules(compare(resource(), new)) == ["breaking bound-tightened metadata.name"]
    assert severity(new, resource()) is SAFE


def test_an_embedded_resource_keeps_its_type_and_metadata_only_as_one() -> None:
    embedded = {**object_of({"spec": STRING}), "x-kubernetes-embedded-resource": True}
    findings = compare(field_of(embedded), field_of(object_of({"spec": STRING})))
    assert rules(findings) == ["breaking embedded-resource-changed spec.field"]
    assert findings[0].loses_data


def test_a_transition_rule_that_no_longer_runs_on_creation_is_safe() -> None:
    old = {"rule": "self == oldSelf.orValue('a')", "optionalOldSelf": True}
    new = {**old, "optionalOldSelf": False}
    changed = ({**STRING, "x-kubernetes-validations": [each]} for each in (old, new))
    assert severity(*(field_of(each) for each in changed)) is SAFE


def test_a_removed_object_is_one_finding_however_much_it_holds() -> None:
    old = field_of(object_of({str(index): STRING for index in range(100)}))
    assert rules(compare(old, field_of(None))) == ["breaking field-removed spec.field"]


def test_paths_name_lists_and_maps() -> None:
    old = field_of({"type": "array", "items": object_of({"labels": MAP})})
    limited = {**MAP, "additionalProperties": {**STRING, "maxLength": 3}}
    new = field_of({"type": "array", "items": object_of({"labels": limited})})
    assert rules(compare(old, new)) == ["breaking bound-tightened spec.field[*].labels.*"]


def test_every_finding_that_is_not_safe_has_a_reason_and_a_remedy() -> None:
    for _, old, new, _, _ in ROWS:
        for finding in (*compare(field_of(old), field_of(new)), *compare(field_of(new), field_of(old))):
            assert finding.reason
            assert finding.severity is SAFE or finding.remedy

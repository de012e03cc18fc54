"""Validation reports errors in kube-apiserver's words."""

from typing import Any

import pytest

from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import unknown_fields, validate, validate_status


def spec(properties: dict[str, Any], **more: Any) -> Schema:
    return Schema.from_crd(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **more}}}
    )


def messages(schema: Schema, value: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    previous = None if old is None else {"spec": old}
    return [str(error) for error in validate(schema, {"spec": value}, previous)]


@pytest.mark.parametrize(
    ("facet", "value", "message"),
    [
        (
            {"type": "integer"},
            "x",
            'spec.f: Invalid value: "string": spec.f in body must be of type integer: "string"',
        ),
        (
            {"type": "string"},
            5,
            'spec.f: Invalid value: "integer": spec.f in body must be of type string: "integer"',
        ),
        (
            {"type": "string"},
            {},
            'spec.f: Invalid value: "object": spec.f in body must be of type string: "object"',
        ),
        (
            {"type": "string"},
            None,
            'spec.f: Invalid value: "null": spec.f in body must be of type string: "null"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec.f: Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "spec.f: Invalid value: 1: spec.f in body should be greater than 1",
        ),
        (
            {"type": "number", "maximum": 1.5},
            2.5,
            "spec.f: Invalid value: 2.5: spec.f in body should be less than or equal to 1.5",
        ),
        (
            {"type": "integer", "multipleOf": 5},
            7,
            "spec.f: Invalid value: 7: spec.f in body should be a multiple of 5",
        ),
        ({"type": "string", "maxLength": 3}, "long", "spec.f: Too long: may not be more than 3 bytes"),
        (
            {"type": "string", "minLength": 3},
            "ab",
            'spec.f: Invalid value: "ab": spec.f in body should be at least 3 chars long',
        ),
        (
            {"type": "string", "pattern": "^a+$"},
            "b",
            "spec.f: Invalid value: \"b\": spec.f in body should match '^a+$'",
        ),
        (
            {"type": "string", "enum": ["a", "b"]},
            "c",
            'spec.f: Unsupported value: "c": supported values: "a", "b"',
        ),
        ({"type": "integer", "enum": [1, 2]}, 3, 'spec.f: Unsupported value: 3: supported values: "1", "2"'),
        (
            {"type": "string", "format": "ipv4"},
            "x",
            'spec.f: Invalid value: "x": spec.f in body must be of type ipv4: "x"',
        ),
        (
            {"type": "string", "format": "date-time"},
            "x",
            'spec.f: Invalid value: "x": spec.f in body must be of type date-time: "x"',
        ),
        (
            {"type": "string", "format": "date"},
            5,
            'spec.f: Invalid value: "int64": spec.f in body must be of type date: "int64"',
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "spec.f: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            [],
            "spec.f: Invalid value: 0: spec.f in body should have at least 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}},
            ["a", 1],
            'spec.f[1]: Invalid value: "integer": spec.f[1] in body must be of type string: "integer"',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            {"a": "", "b": ""},
            "spec.f: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"a": "x"},
            'spec.f.a: Invalid value: "string": spec.f.a in body must be of type integer: "string"',
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "b", "a", "a"],
            'spec.f[2]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            [{"name": "a"}, {"name": "a"}],
            'spec.f[1]: Duplicate value: {"name":"a"}',
        ),
        (
            {"type": "integer", "format": "int32"},
            1 << 31,
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.f',
        ),
    ],
)
def test_a_value_that_violates_a_facet_is_rejected(facet: dict[str, Any], value: Any, message: str) -> None:
    assert messages(spec({"f": facet}), {"f": value}) == [message]


@pytest.mark.parametrize(
    ("facet", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "format": "made-up"}, "x"),
        ({"type": "string", "maxLength": 3}, "äöü"),
        ({"type": "number", "multipleOf": 0.1}, 0.3),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [1]}),
    ],
)
def test_a_value_that_satisfies_a_facet_is_accepted(facet: dict[str, Any], value: Any) -> None:
    assert messages(spec({"f": facet}), {"f": value}) == []


def test_a_fraction_for_an_integer_is_reported_twice() -> None:
    assert messages(spec({"f": {"type": "integer"}}), {"f": 1.5}) == [
        'spec.f: Invalid value: "number": spec.f in body must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.f',
    ]


def test_a_missing_required_field_is_reported_with_its_path() -> None:
    schema = Schema.from_crd({"type": "object", "required": ["spec"]})
    assert [str(error) for error in validate(schema, {})] == ["spec: Required value"]


def test_any_of_reports_the_branch_that_got_furthest() -> None:
    schema = spec({"a": {"type": "integer"}, "b": {"type": "integer"}}, anyOf=[{"required": ["a"]}])
    assert messages(schema, {}) == [
        '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)',
        "spec.a: Required value",
    ]


def test_one_of_counts_the_valid_alternatives() -> None:
    branches = [{"required": ["a"]}, {"required": ["b"]}]
    schema = spec({"a": {"type": "integer"}, "b": {"type": "integer"}}, oneOf=branches)
    assert messages(schema, {"a": 1}) == []
    [message] = messages(schema, {"a": 1, "b": 1})
    assert message.endswith(
        '"spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    )


def test_all_of_and_not_are_reported() -> None:
    schema = spec(
        {"a": {"type": "integer"}},
        allOf=[{"properties": {"a": {"maximum": 5}}}],
        **{"not": {"properties": {"a": {"enum": [9]}}}},
    )
    assert messages(schema, {"a": 9}) == [
        "spec.a: Invalid value: 9: spec.a in body should be less than or equal to 5",
        '<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated',
        '<nil>: Invalid value: "": "spec" must not validate the schema (not)',
    ]


def test_an_update_does_not_fail_on_unchanged_values() -> None:
    sized = {"name": {"type": "string"}, "size": {"type": "integer", "maximum": 5}}
    keyed = {
        "type": "array",
        "items": {"type": "object", "properties": sized},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    schema = spec({"mode": {"type": "string", "enum": ["a"]}, "list": keyed})
    old = {"mode": "z", "list": [{"name": "x", "size": 9}]}
    moved = {"mode": "z", "list": [{"name": "y", "size": 1}, {"name": "x", "size": 9}]}
    assert messages(schema, moved, old) == []
    assert messages(schema, {**moved, "mode": "q"}, old) == [
        'spec.mode: Unsupported value: "q": supported values: "a"'
    ]


def test_status_errors_are_placed_under_status() -> None:
    schema = Schema.from_crd(
        {
            "type": "object",
            "properties": {"status": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        }
    )
    errors = validate_status(schema, {"status": {"n": "x"}}, {})
    assert [str(error) for error in errors] == [
        'status.n: Invalid value: "string": n in body must be of type integer: "string"'
    ]


def test_an_embedded_resource_needs_its_type() -> None:
    schema = spec({"template": {"type": "object", "x-kubernetes-embedded-resource": True}})
    assert messages(schema, {"template": {"kind": "Pod"}}) == ["spec.template.apiVersion: Required value"]


def test_a_cause_carries_reason_message_and_field() -> None:
    [error] = validate(spec({"f": {"type": "integer"}}), {"spec": {"f": "x"}})
    assert error.cause == {
        "reason": "FieldValueTypeInvalid",
        "message": 'Invalid value: "string": spec.f in body must be of type integer: "string"',
        "field": "spec.f",
    }


def test_unknown_fields_are_reported_with_their_paths() -> None:
    schema = spec({"list": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}}})
    obj = {"spec": {"x": 1, "list": [{"a": 1, "b": 2}]}, "metadata": {"name": "n", "oops": 1}, "top": {}}
    assert unknown_fields(schema, obj) == [
        'unknown field "metadata.oops"',
        'unknown field "spec.list[0].b"',
        'unknown field "spec.x"',
        'unknown field "top"',
    ]

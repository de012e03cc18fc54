"""The rules in x-kubernetes-validations on custom resources."""

from typing import Any

from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import validate


def crd(spec: dict[str, Any]) -> Schema:
    return Schema.from_crd({"type": "object", "properties": {"spec": spec}})


def texts(schema: Schema, spec: Any, old: Any = None) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(error) for error in validate(schema, {"spec": spec}, before)]


def ruled(rule: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": rule, **more}],
    }


def test_a_rule_that_fails_is_reported() -> None:
    schema = crd(ruled("self.min <= self.max"))
    assert texts(schema, {"min": 1, "max": 2}) == []
    assert texts(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: failed rule: self.min <= self.max"]


def test_a_message_replaces_the_rule() -> None:
    schema = crd(ruled("self.min <= self.max", message=" too small "))
    assert texts(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: too small"]


def test_a_message_expression_replaces_the_message() -> None:
    schema = crd(
        ruled(
            "self.min <= self.max", message="no", messageExpression="'%d > %d'.format([self.min, self.max])"
        )
    )
    assert texts(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: 3 > 2"]


def test_a_failing_message_expression_falls_back_to_the_message() -> None:
    schema = crd(ruled("self.min <= self.max", message="no", messageExpression="string(self.gone)"))
    assert texts(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: no"]


def test_reason_and_field_path_are_used_in_the_error() -> None:
    schema = crd(
        ruled("has(self.max)", message="say how many", reason="FieldValueRequired", fieldPath=".max")
    )
    assert texts(schema, {}) == ["spec.max: Required value: say how many"]
    forbidden = crd(ruled("false", reason="FieldValueForbidden", message="never"))
    assert texts(forbidden, {}) == ["spec: Forbidden: never"]


def test_the_error_of_a_scalar_contains_its_value() -> None:
    schema = crd({"type": "string", "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]})
    assert texts(schema, "b") == ["spec: Invalid value: \"b\": failed rule: self.startsWith('a')"]


def test_a_missing_key_is_an_error_of_the_rule() -> None:
    assert texts(crd(ruled("self.min > 0")), {}) == [
        'spec: Invalid value: "object": no such key: min evaluating rule: self.min > 0'
    ]


def test_a_transition_rule_runs_on_updates_only() -> None:
    schema = crd(ruled("self.min == oldSelf.min", message="min is immutable"))
    assert texts(schema, {"min": 1}) == []
    assert texts(schema, {"min": 1}, {"min": 1}) == []
    assert texts(schema, {"min": 2}, {"min": 1}) == ["spec: Invalid value: min is immutable"]


def test_old_self_may_be_optional() -> None:
    schema = crd(
        ruled("oldSelf.hasValue() ? self.min >= oldSelf.value().min : self.min == 0", optionalOldSelf=True)
    )
    assert texts(schema, {"min": 0}) == []
    assert len(texts(schema, {"min": 1})) == 1
    assert texts(schema, {"min": 2}, {"min": 1}) == []


def test_an_unchanged_value_is_accepted() -> None:
    inner = {"a": ruled("self.min > 5"), "b": {"type": "string"}}
    schema = crd({"type": "object", "properties": inner})
    assert texts(schema, {"a": {"min": 1}, "b": "y"}, {"a": {"min": 1}, "b": "x"}) == []
    assert len(texts(schema, {"a": {"min": 2}, "b": "y"}, {"a": {"min": 1}, "b": "x"})) == 1


def test_items_of_a_map_list_are_compared_with_their_old_values() -> None:
    item = ruled("self.min >= oldSelf.min")
    item["properties"]["name"] = {"type": "string"}
    schema = crd(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": item,
        }
    )
    old = [{"name": "a", "min": 1}, {"name": "b", "min": 5}]
    assert texts(schema, [{"name": "b", "min": 6}, {"name": "a", "min": 1}], old) == []
    assert texts(schema, [{"name": "b", "min": 4}], old) == [
        "spec[0]: Invalid value: failed rule: self.min >= oldSelf.min"
    ]


def test_names_that_are_not_identifiers_are_escaped() -> None:
    schema = crd(
        {
            "type": "object",
            "properties": {"foo-bar": {"type": "integer"}, "namespace": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self.foo__dash__bar > 1 && self.__namespace__ == 'n'"}],
        }
    )
    assert texts(schema, {"foo-bar": 2, "namespace": "n"}) == []


def test_formats_become_times_and_durations() -> None:
    schema = crd(
        {
            "type": "object",
            "properties": {
                "at": {"type": "string", "format": "date-time"},
                "for": {"type": "string", "format": "duration"},
                "share": {"type": "number"},
            },
            "x-kubernetes-validations": [
                {"rule": "self.at > timestamp('2026-01-01T00:00:00Z')"},
                {"rule": "self.__for__ <= duration('1h')"},
                {"rule": "self.share + 0.5 == 1.5"},
            ],
        }
    )
    assert texts(schema, {"at": "2026-06-01T00:00:00Z", "for": "90s", "share": 1}) == []


def test_rules_of_the_root_can_use_the_name() -> None:
    schema = Schema.from_crd(
        {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('ok')"}]}
    )
    assert validate(schema, {"metadata": {"name": "ok-1"}}) == []
    assert [str(error) for error in validate(schema, {"metadata": {"name": "no"}})] == [
        "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('ok')"
    ]


def test_rules_run_only_if_the_object_fits_its_schema() -> None:
    errors = texts(crd(ruled("self.min > 0")), {"min": "x"})
    assert len(errors) == 2
    assert "some validation rules were not checked" in errors[1]


def test_the_error_of_a_rule_on_a_map_has_its_key() -> None:
    schema = crd({"type": "object", "additionalProperties": ruled("self.min > 0")})
    assert texts(schema, {"a": {"min": 1}, "b": {"min": 0}}) == [
        "spec[b]: Invalid value: failed rule: self.min > 0"
    ]


def test_a_rule_that_an_unchanged_value_breaks_is_a_warning() -> None:
    inner = {"a": ruled("self.min > 5", message="too small"), "b": {"type": "string"}}
    schema = crd({"type": "object", "properties": inner})
    warnings: list[str] = []
    before = {"spec": {"a": {"min": 1}, "b": "x"}}
    assert validate(schema, {"spec": {"a": {"min": 1}, "b": "y"}}, before, warnings=warnings) == []
    assert warnings == ["spec.a: Invalid value: too small"]


def test_lists_of_type_set_and_map_are_equal_in_any_order() -> None:
    items = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = crd(
        {
            "type": "object",
            "properties": {
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "map": {"type": "array", "items": items, **keyed},
            },
            "x-kubernetes-validations": [{"rule": "self.set == oldSelf.set && self.map == oldSelf.map"}],
        }
    )
    one, two = {"name": "a"}, {"name": "b"}
    old = {"set": ["x", "y"], "map": [one, two]}
    assert texts(schema, {"set": ["y", "x"], "map": [two, one]}, old) == []
    assert len(texts(schema, {"set": ["y", "z"], "map": [two, one]}, old)) == 1

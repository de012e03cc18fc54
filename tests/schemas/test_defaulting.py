"""Defaults replace absent values, and nulls where null is not allowed."""

from typing import Any

from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.schema import Schema


def crd(spec: dict[str, Any]) -> Schema:
    return Schema.from_crd({"type": "object", "properties": {"spec": spec}})


def test_an_absent_field_gets_its_default_and_a_given_one_stays() -> None:
    schema = crd(
        {"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "b": {"default": "x"}}}
    )
    assert apply_defaults(schema, {"spec": {"b": ""}}) == {"spec": {"b": "", "a": 1}}


def test_a_default_is_filled_in_below_a_default() -> None:
    inner = {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 3}}}
    schema = crd({"type": "object", "default": {}, "properties": {"inner": inner}})
    assert apply_defaults(schema, {}) == {"spec": {"inner": {"n": 3}}}


def test_a_default_is_never_shared_between_objects() -> None:
    schema = crd({"type": "object", "default": {"list": [1]}})
    first = apply_defaults(schema, {})
    first["spec"]["list"].append(2)
    assert apply_defaults(schema, {}) == {"spec": {"list": [1]}}


def test_a_null_is_dropped_defaulted_or_kept() -> None:
    schema = crd(
        {
            "type": "object",
            "properties": {
                "plain": {"type": "string"},
                "defaulted": {"type": "string", "default": "d"},
                "nullable": {"type": "string", "nullable": True, "default": "d"},
            },
        }
    )
    obj = {"spec": {"plain": None, "defaulted": None, "nullable": None}}
    assert apply_defaults(schema, obj) == {"spec": {"defaulted": "d", "nullable": None}}


def test_items_and_map_values_are_defaulted() -> None:
    entry = {"type": "object", "properties": {"protocol": {"type": "string", "default": "TCP"}}}
    schema = crd(
        {
            "type": "object",
            "properties": {
                "ports": {"type": "array", "items": entry},
                "named": {"type": "object", "additionalProperties": entry},
            },
        }
    )
    obj = {"spec": {"ports": [{}, {"protocol": "UDP"}], "named": {"a": {}}}}
    assert apply_defaults(schema, obj) == {
        "spec": {"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}], "named": {"a": {"protocol": "TCP"}}}
    }

"""Pruning drops the fields that the schema does not specify, and no others."""

from typing import Any

from kapsa.schemas.pruning import prune
from kapsa.schemas.schema import Schema


def crd(spec: dict[str, Any]) -> Schema:
    return Schema.from_crd({"type": "object", "properties": {"spec": spec}})


def test_unknown_fields_are_dropped_and_specified_ones_stay() -> None:
    schema = crd({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}})
    obj = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n", "x": 1},
        "spec": {"a": {"b": 1, "c": 2}, "d": 3},
    }
    assert prune(schema, obj) == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "spec": {"a": {"b": 1}},
    }


def test_preserved_objects_keep_unknown_fields_but_prune_specified_children() -> None:
    schema = crd(
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"a": {"type": "object", "properties": {"b": {}}}},
        }
    )
    obj = {"spec": {"a": {"b": 1, "c": 2}, "free": {"x": [{"y": 1}]}}}
    assert prune(schema, obj) == {"spec": {"a": {"b": 1}, "free": {"x": [{"y": 1}]}}}


def test_maps_keep_their_keys_and_prune_their_values() -> None:
    schema = crd({"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {}}}})
    assert prune(schema, {"spec": {"any": {"b": 1, "c": 2}}}) == {"spec": {"any": {"b": 1}}}


def test_lists_prune_their_items() -> None:
    schema = crd({"type": "array", "items": {"type": "object", "properties": {"b": {}}}})
    assert prune(schema, {"spec": [{"b": 1, "c": 2}, {"c": 3}]}) == {"spec": [{"b": 1}, {}]}


def test_a_resource_without_a_schema_keeps_all_fields() -> None:
    assert prune(Schema.from_crd(None), {"spec": {"a": {"b": 1}}}) == {"spec": {"a": {"b": 1}}}

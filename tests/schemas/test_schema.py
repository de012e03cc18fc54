"""The schema node parsed from a CRD."""

import msgspec

from kapsa.schemas.schema import OBJECT_META, Schema, walk


def test_a_custom_resource_gets_type_and_object_metadata() -> None:
    schema = Schema.from_crd({"type": "object", "properties": {"spec": {"type": "object"}}})
    assert schema.properties["metadata"] is OBJECT_META
    assert schema.properties["kind"].type == "string"
    owners = schema.properties["metadata"].properties["ownerReferences"]
    assert (owners.list_type, owners.map_keys) == ("map", ("uid",))


def test_a_crd_may_restrict_the_name() -> None:
    named = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}
    schema = Schema.from_crd({"type": "object", "properties": {"metadata": named}})
    assert schema.properties["metadata"].properties["name"].max_length == 5
    assert "labels" in schema.properties["metadata"].properties


def test_facets_and_extensions_are_read() -> None:
    schema = Schema.from_crd(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["a", "b"],
                    "maxItems": 3,
                    "default": [],
                    "items": {"type": "object", "x-kubernetes-map-type": "atomic", "required": ["a"]},
                    "x-kubernetes-validations": [{"rule": "true", "messageExpression": "'no'"}],
                }
            },
        }
    )
    spec = schema.properties["spec"]
    assert (spec.list_type, spec.map_keys, spec.max_items, spec.default) == ("map", ("a", "b"), 3, [])
    assert spec.items is not None
    assert (spec.items.map_type, spec.items.required) == ("atomic", ("a",))
    assert (spec.rules[0].rule, spec.rules[0].message_expression) == ("true", "'no'")
    assert schema.default is msgspec.UNSET


def test_walking_a_recursive_schema_ends() -> None:
    loop: dict[str, Schema] = {}
    node = Schema(type="object", properties=loop)
    loop["again"] = node
    assert list(walk(node)) == [node]

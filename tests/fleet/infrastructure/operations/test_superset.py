"""A CRD of a chart joined with the one that a cluster has."""

from __future__ import annotations

from typing import Any

from kapsa.fleet.infrastructure.operations.crds.superset import joined_spec, storage_version, with_storage

Schema = dict[str, Any]


def version(name: str, schema: Schema, **more: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}


def object_of(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def joined(chart: Schema, live: Schema) -> Schema:
    spec = joined_spec({"versions": [version("v1", chart)]}, {"versions": [version("v1", live)]})
    root: Schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    return root


INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def test_the_chart_decides_on_what_both_have() -> None:
    assert joined(object_of(a=STRING), object_of(a=INTEGER)) == object_of(a=STRING)


def test_properties_that_only_the_cluster_has_stay_at_any_depth() -> None:
    chart = object_of(items={"type": "array", "items": object_of(a=INTEGER)}, map=_map(object_of()))
    live = object_of(
        items={"type": "array", "items": object_of(b=STRING)}, map=_map(object_of(c=STRING)), d=STRING
    )
    expected = object_of(
        items={"type": "array", "items": object_of(a=INTEGER, b=STRING)},
        map=_map(object_of(c=STRING)),
        d=STRING,
    )
    assert joined(chart, live) == expected


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def test_an_object_that_keeps_unknown_fields_needs_no_properties_of_the_cluster() -> None:
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert joined(object_of(spec=open_object), object_of(spec=object_of(a=INTEGER))) == object_of(
        spec=open_object
    )
    closed_to_map = _map(STRING)
    assert joined(object_of(spec=closed_to_map), object_of(spec=object_of(a=STRING))) == object_of(
        spec=closed_to_map
    )


def test_versions_that_only_the_cluster_has_stay_served_and_give_up_the_storage() -> None:
    chart = {"versions": [version("v2", object_of())]}
    live = {"versions": [version("v1", object_of(a=INTEGER)), version("v1beta1", object_of(), served=False)]}
    spec = joined_spec(chart, live)
    assert [(each["name"], each["served"], each["storage"]) for each in spec["versions"]] == [
        ("v2", True, True),
        ("v1", True, False),
        ("v1beta1", False, False),
    ]
    assert storage_version(with_storage(spec, "v1")) == "v1"
    assert storage_version(with_storage(spec, "v3")) == "v2"

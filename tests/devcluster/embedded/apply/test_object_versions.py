"""Field ownership across API versions."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.embedded.apply.field_manager import ApplyConflict, apply, track_update
from kapsa.devcluster.embedded.apply.object_versions import converter
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.schemas.schema import Schema


def edition(version: str, *fields: str) -> ResourceInfo:
    spec = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
    schema = Schema.from_crd({"type": "object", "properties": {"spec": spec}})
    return ResourceInfo(
        group="example.com",
        version=version,
        resource="editions",
        kind="Edition",
        namespaced=True,
        is_custom=True,
        load_schema=lambda: schema,
    )


V1, V2 = edition("v1", "title", "pages", "tag"), edition("v2", "title", "pages")
REGISTRY = ResourceRegistry([V1, V2])


def config(info: ResourceInfo, **spec: str) -> dict[str, Any]:
    obj = {"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": "x"}}
    return {**obj, "spec": spec} if spec else obj


def applied(live: dict[str, Any] | None, info: ResourceInfo, manager: str, **spec: str) -> dict[str, Any]:
    return apply(
        None if live is None else {**live, "apiVersion": info.api_version},
        config(info, **spec),
        manager=manager,
        schema=info.schema,
        force=False,
        api_version=info.api_version,
        now="2026-01-01T00:00:00Z",
        convert=converter(REGISTRY, info),
    )


def test_an_applier_that_moves_to_another_version_loses_the_fields_it_leaves_out() -> None:
    live = applied(None, V1, "alice", title="a", pages="1")
    after = applied(live, V2, "alice", title="a")
    assert after["spec"] == {"title": "a"}
    assert [entry["apiVersion"] for entry in after["metadata"]["managedFields"]] == ["example.com/v2"]


def test_fields_owned_in_another_version_are_kept() -> None:
    live = applied(None, V1, "alice", title="a", pages="1")
    live = applied(live, V2, "bob", pages="1")
    assert applied(live, V1, "alice", title="a")["spec"] == {"title": "a", "pages": "1"}


def test_a_conflict_is_detected_in_the_version_of_the_owner() -> None:
    live = applied(None, V2, "alice", title="a")
    with pytest.raises(ApplyConflict, match=r'conflict with "alice": \.spec\.title'):
        applied(live, V1, "bob", title="b")


def test_an_update_in_one_version_takes_from_owners_in_another() -> None:
    live = {**applied(None, V1, "alice", title="a", pages="1"), "apiVersion": V2.api_version}
    after = track_update(
        live,
        {**live, "spec": {"title": "b", "pages": "1"}},
        manager="bob",
        schema=V2.schema,
        api_version=V2.api_version,
        now="2026-01-01T00:00:01Z",
        convert=converter(REGISTRY, V2),
    )
    assert [
        (entry["manager"], entry["apiVersion"], entry["fieldsV1"])
        for entry in after["metadata"]["managedFields"]
    ] == [
        ("alice", "example.com/v1", {"f:spec": {"f:pages": {}}}),
        ("bob", "example.com/v2", {"f:spec": {"f:title": {}}}),
    ]


def test_a_version_that_is_not_served_converts_to_nothing() -> None:
    convert = converter(REGISTRY, V1)
    assert convert(config(V1), "example.com/v9") is None
    assert convert(config(V1), "other.example.com/v1") is None
    assert convert(config(V1), "example.com/v2") == (config(V2), V2.schema)

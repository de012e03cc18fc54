"""Built-in objects as Go writes them."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.embedded.codec.written_form import write_as_go, zero_object
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.schemas.schema import Schema

REGISTRY = ResourceRegistry(builtin_resources())


def info(api_version: str, resource: str) -> ResourceInfo:
    group, _, version = api_version.rpartition("/")
    return REGISTRY.get(group, version, resource)


def written(api_version: str, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    write_as_go(info(api_version, resource).schema, obj)
    return obj


def test_a_new_deployment_has_the_structs_that_are_always_written() -> None:
    assert zero_object(info("apps/v1", "deployments").schema, "apps/v1", "Deployment") == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {},
        "spec": {
            "selector": None,
            "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": None}},
        },
        "status": {},
    }


def test_a_new_custom_resource_has_nothing_but_its_type() -> None:
    schema = Schema.from_crd({"type": "object", "properties": {"spec": {"type": "object"}}})
    assert zero_object(schema, "example.com/v1", "Widget") == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
    }


def test_structs_inside_lists_are_written_too() -> None:
    pod = written("v1", "pods", {"metadata": {}, "spec": {"containers": [{"name": "a"}]}})
    assert pod == {
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {}}]},
        "status": {},
    }


def test_times_that_are_not_set_are_null() -> None:
    conditions = [{"type": "Available", "status": "True"}]
    deployment = written("apps/v1", "deployments", {"status": {"conditions": conditions}})
    assert deployment["status"]["conditions"] == [
        {"type": "Available", "status": "True", "lastUpdateTime": None, "lastTransitionTime": None}
    ]


@pytest.mark.parametrize("empty", [{}, None])
def test_empty_maps_are_left_out(empty: Any) -> None:
    obj = written("v1", "configmaps", {"metadata": {"labels": empty, "name": "x"}, "data": empty})
    assert obj == {"metadata": {"name": "x"}}


def test_a_zero_stays_where_it_means_something() -> None:
    obj = written("apps/v1", "deployments", {"spec": {"replicas": 0, "minReadySeconds": 0, "paused": False}})
    assert obj["spec"]["replicas"] == 0
    assert "minReadySeconds" not in obj["spec"]
    assert "paused" not in obj["spec"]


def test_an_empty_list_of_managers_is_kept_for_field_tracking() -> None:
    assert written("v1", "configmaps", {"metadata": {"managedFields": []}}) == {
        "metadata": {"managedFields": []}
    }


def test_writing_twice_changes_nothing() -> None:
    service: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}], "selector": {}}}
    once = written("v1", "services", service)
    again = written("v1", "services", {**once})
    assert again == once

"""The built-in kinds from the data file."""

import pytest

from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.definitions import definitions, load
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.schemas.pruning import unknown_fields
from kapsa.schemas.schema import Schema


@pytest.fixture(scope="module")
def registry() -> ResourceRegistry:
    return ResourceRegistry(builtin_resources())


def schema_of(registry: ResourceRegistry, group: str, version: str, resource: str) -> Schema:
    schema = registry.get(group, version, resource).schema
    assert schema is not None
    return schema


def test_every_built_in_resource_has_a_schema() -> None:
    assert [info.resource for info in builtin_resources() if info.schema is None] == []


def test_the_groups_that_operators_use_are_served(registry: ResourceRegistry) -> None:
    expected = {
        "": "v1",
        "apps": "v1",
        "batch": "v1",
        "networking.k8s.io": "v1",
        "rbac.authorization.k8s.io": "v1",
        "policy": "v1",
        "autoscaling": "v2",
        "coordination.k8s.io": "v1",
        "events.k8s.io": "v1",
        "storage.k8s.io": "v1",
        "admissionregistration.k8s.io": "v1",
        "apiextensions.k8s.io": "v1",
        "authentication.k8s.io": "v1",
        "authorization.k8s.io": "v1",
        "discovery.k8s.io": "v1",
    }
    assert {
        group: version
        for group, version in expected.items()
        if not registry.has_group_version(group, version)
    } == {}


def test_a_resource_has_its_names_scope_and_subresources(registry: ResourceRegistry) -> None:
    deployments = registry.get("apps", "v1", "deployments")
    assert (deployments.kind, deployments.singular, deployments.short_names) == (
        "Deployment",
        "deployment",
        ("deploy",),
    )
    assert deployments.namespaced
    assert deployments.categories == ("all",)
    scale = deployments.subresource("scale")
    assert scale is not None
    assert (scale.group, scale.version, scale.kind) == ("autoscaling", "v1", "Scale")
    status = deployments.subresource("status")
    assert status is not None
    assert status.kind == ""


def test_lists_carry_their_keys_and_patch_strategy(registry: ResourceRegistry) -> None:
    pod_spec = schema_of(registry, "", "v1", "pods").properties["spec"]
    containers = pod_spec.properties["containers"]
    assert (containers.list_type, containers.map_keys) == ("map", ("name",))
    assert (containers.patch_strategy, containers.patch_merge_key) == ("merge", "name")
    assert containers.items is not None
    ports = containers.items.properties["ports"]
    assert ports.map_keys == ("containerPort", "protocol")
    assert ports.items is not None
    assert ports.items.properties["protocol"].default == "TCP"
    assert ports.items.properties["hostPort"].format == "int32"


def test_retain_keys_stays_with_the_field_that_has_it(registry: ResourceRegistry) -> None:
    spec = schema_of(registry, "apps", "v1", "deployments").properties["spec"]
    assert spec.properties["strategy"].patch_strategy == "retainKeys"
    assert definitions().schema("io.k8s.api.apps.v1.DeploymentStrategy").patch_strategy == ""


def test_a_recursive_definition_points_back_at_itself() -> None:
    props = definitions().schema("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
    assert props.properties["not"].properties is props.properties


def test_int_or_string_and_quantities_accept_both_forms(registry: ResourceRegistry) -> None:
    strategy = definitions().schema("io.k8s.api.apps.v1.RollingUpdateDeployment")
    assert strategy.properties["maxSurge"].int_or_string
    limits = definitions().schema("io.k8s.api.core.v1.ResourceRequirements").properties["limits"]
    assert limits.additional is not None
    assert limits.additional.format == "quantity"


def test_unknown_fields_of_a_built_in_kind_are_reported(registry: ResourceRegistry) -> None:
    obj = {"spec": {"containers": [{"name": "a", "imagge": "x"}]}}
    assert unknown_fields(schema_of(registry, "", "v1", "pods"), obj) == [
        'unknown field "spec.containers[0].imagge"'
    ]


def test_the_data_has_the_version_it_was_generated_from() -> None:
    assert load().version.git_version.startswith(f"v{load().version.major}.{load().version.minor}.")

"""The fields that an endpoint takes from the live object, so that no manager owns them through it."""

from __future__ import annotations

import pytest

from kapsa.devcluster.embedded.apply.fieldset import path_text, paths
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry, Subresource
from kapsa.devcluster.embedded.verbs.reset_fields import reset_fields

REGISTRY = ResourceRegistry(builtin_resources())
WIDGET = ResourceInfo(
    group="example.com",
    version="v1",
    resource="widgets",
    kind="Widget",
    namespaced=True,
    is_custom=True,
    subresources=(Subresource(name="status"),),
)
PLAIN = ResourceInfo(
    group="example.com", version="v1", resource="plains", kind="Plain", namespaced=True, is_custom=True
)


def reset(info: ResourceInfo, subresource: str) -> list[str]:
    return [path_text(path) for path in paths(reset_fields(info, subresource))]


@pytest.mark.parametrize(
    ("group", "resource", "subresource", "expected"),
    [
        ("", "configmaps", "", []),
        ("", "pods", "", [".status"]),
        ("", "pods", "status", [".spec", ".metadata.deletionTimestamp", ".metadata.ownerReferences"]),
        ("", "pods", "ephemeralcontainers", []),
        ("", "namespaces", "finalize", [".status"]),
        ("apps", "deployments", "", [".status"]),
        ("apps", "deployments", "status", [".spec", ".metadata.labels"]),
        ("apps", "deployments", "scale", []),
        ("apps", "statefulsets", "status", [".spec"]),
        ("certificates.k8s.io", "certificatesigningrequests", "approval", [".spec", ".status.certificate"]),
        ("storage.k8s.io", "volumeattachments", "status", [".metadata", ".spec"]),
    ],
)
def test_a_built_in_kind(group: str, resource: str, subresource: str, expected: list[str]) -> None:
    assert reset(REGISTRY.get(group, "v1", resource), subresource) == expected


def test_a_custom_resource_with_a_status_subresource() -> None:
    assert reset(WIDGET, "") == [".status"]
    assert reset(WIDGET, "status") == [".metadata", ".spec"]


def test_status_is_a_field_like_any_other_without_the_subresource() -> None:
    assert reset(PLAIN, "") == []

"""Names for the second release of blue-green."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import cluster_scoped_kinds
from kapsa.fleet.infrastructure.charts.suffixed_names import suffixed

GREEN = ReleaseRef("widget-green", "green")
RBAC = "rbac.authorization.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"
Manifest = dict[str, Any]


def named(api_version: str, kind: str, name: str, **more: Any) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


def rename(*objects: Manifest) -> list[Manifest]:
    return suffixed(objects, GREEN, cluster_scoped_kinds(()))


def names(objects: list[Manifest]) -> list[str]:
    return [each["metadata"]["name"] for each in objects]


def workload(**container: Any) -> Manifest:
    pod = {
        "containers": [{"name": "manager", "image": "widget:1", **container}],
        "priorityClassName": "vital",
    }
    return named("apps/v1", "Deployment", "widget", spec={"template": {"spec": pod}})


def test_names_that_follow_the_release_stay_as_they_are() -> None:
    objects = [named(RBAC, "ClusterRole", "widget-green-manager"), workload()]
    assert rename(*objects) == objects


def test_a_fixed_cluster_scoped_name_is_suffixed_with_the_references_to_it() -> None:
    webhooks = {"apiGroups": ["admissionregistration.k8s.io"], "verbs": ["update"]}
    rule = {
        **webhooks,
        "resources": ["validatingwebhookconfigurations"],
        "resourceNames": ["checks", "other"],
    }
    renamed = rename(
        named(RBAC, "ClusterRole", "manager", rules=[rule]),
        named(RBAC, "ClusterRoleBinding", "manager", roleRef={"kind": "ClusterRole", "name": "manager"}),
        named(ADMISSION, "ValidatingWebhookConfiguration", "checks"),
        named("scheduling.k8s.io/v1", "PriorityClass", "vital"),
        workload(),
    )
    assert names(renamed) == ["manager-green", "manager-green", "checks-green", "vital-green", "widget"]
    assert renamed[0]["rules"][0]["resourceNames"] == ["checks-green", "other"]
    assert renamed[1]["roleRef"]["name"] == "manager-green"
    assert renamed[4]["spec"]["template"]["spec"]["priorityClassName"] == "vital-green"


def test_an_object_in_a_namespace_that_both_releases_use_is_suffixed_too() -> None:
    role = named(RBAC, "Role", "leader")
    role["metadata"]["namespace"] = "kube-system"
    own = named(RBAC, "Role", "leader")
    own["metadata"]["namespace"] = GREEN.namespace
    assert names(rename(role)) == ["leader-green"]
    assert names(rename(own)) == ["leader"]


def test_the_crds_and_the_own_namespace_of_a_release_are_shared_on_purpose() -> None:
    crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com")
    assert names(rename(crd, named("v1", "Namespace", "green"))) == ["widgets.example.com", "green"]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([named("apiregistration.k8s.io/v1", "APIService", "v1.example.com")], "APIService v1.example.com"),
        ([named("storage.k8s.io/v1", "CSIDriver", "csi.example.com")], "CSIDriver csi.example.com"),
        ([named(RBAC, "ClusterRole", "x" * 250)], "too long"),
        (
            [
                named(ADMISSION, "MutatingWebhookConfiguration", "defaults"),
                workload(args=["--webhook-configuration=defaults"]),
            ],
            "in its arguments",
        ),
        (
            [
                named(ADMISSION, "MutatingWebhookConfiguration", "defaults"),
                workload(env=[{"name": "CONFIG", "value": "defaults"}]),
            ],
            "in its arguments",
        ),
    ],
    ids=["api-service", "csi-driver", "long-name", "argument", "environment"],
)
def test_what_cannot_be_renamed_is_refused_with_the_reason(objects: list[Manifest], reason: str) -> None:
    with pytest.raises(InvalidInput, match="BlueGreen cannot be used") as error:
        rename(*objects)
    assert reason in str(error.value)

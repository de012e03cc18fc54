"""The role that the manager needs for what charts render to."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.infrastructure.clusters.manager_role import manager_role

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "wolves.example.com"},
    "spec": {"group": "example.com", "names": {"plural": "wolves", "kind": "Wolf"}},
}
GRANT = {"apiGroups": ["example.com"], "resources": ["wolves/status"], "verbs": ["update"]}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "wolf"},
    "rules": [GRANT, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}


def named(api_version: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}


def verbs_of(role: dict[str, Any], group: str, resource: str) -> set[str]:
    return {
        verb
        for rule in role["rules"]
        if group in rule.get("apiGroups", ()) and resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "group", "resource"),
    [
        ("v1", "ConfigMap", "", "configmaps"),
        ("v1", "Endpoints", "", "endpoints"),
        ("networking.k8s.io/v1", "NetworkPolicy", "networking.k8s.io", "networkpolicies"),
        ("networking.k8s.io/v1", "Ingress", "networking.k8s.io", "ingresses"),
        ("networking.k8s.io/v1", "IngressClass", "networking.k8s.io", "ingressclasses"),
        ("gateway.networking.k8s.io/v1", "Gateway", "gateway.networking.k8s.io", "gateways"),
    ],
)
def test_helm_may_do_everything_with_the_kinds_of_the_charts(
    api_version: str, kind: str, group: str, resource: str
) -> None:
    verbs = verbs_of(manager_role("fleet", [named(api_version, kind)]), group, resource)
    assert verbs >= {"get", "list", "create", "patch", "delete"}
    assert not verbs_of(manager_role("fleet", []), group, resource)


def test_neither_a_crd_nor_a_custom_resource_may_be_deleted() -> None:
    role = manager_role("fleet", [CRD])
    assert "delete" not in verbs_of(role, "apiextensions.k8s.io", "customresourcedefinitions")
    assert verbs_of(role, "example.com", "wolves") == {"get", "list", "create", "update", "patch"}


def test_what_the_roles_of_a_chart_grant_is_granted_once_and_unchanged() -> None:
    role = manager_role("fleet", [ROLE, ROLE])
    assert [rule for rule in role["rules"] if rule in ROLE["rules"]] == ROLE["rules"]
    assert role["metadata"] == {"name": "fleet"}


def test_no_rule_has_a_wildcard_and_none_lets_the_manager_grant_what_it_does_not_have() -> None:
    role = manager_role("fleet", [CRD, ROLE, named("v1", "ConfigMap")])
    parts = [part for rule in role["rules"] for parts in rule.values() for part in parts]
    assert not {"*", "escalate", "bind", "impersonate"} & set(parts)

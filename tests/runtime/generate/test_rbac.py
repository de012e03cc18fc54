"""RBAC from what is declared, and the comparison with what was done."""

from typing import Any

import msgspec
import pytest

from kapsa.runtime import (
    ControllerRights,
    CustomResource,
    GroupResource,
    OperatorRights,
    Spec,
    Status,
    WebhookRights,
    grants,
    rbac_manifests,
    rule_for,
)


class Policy(CustomResource[Spec, Status], group="example.com", version="v1", scope="Cluster"):
    """A policy."""


APPS = GroupResource("example.com", "myapps")
DEPLOYMENTS = GroupResource.of("apps/v1/Deployment")


def rights(**changes: Any) -> OperatorRights:
    controller = {
        "resource": APPS,
        "owns": (DEPLOYMENTS, GroupResource.of("v1/Service")),
        **changes.pop("controller", {}),
    }
    return OperatorRights(controllers=(ControllerRights(**controller),), **changes)


def rules_of(declared: OperatorRights, namespace: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the verbs by resource of the grant for a namespace, or for the whole cluster."""
    matches = [grant for grant in grants(declared, namespace="system") if grant.namespace == namespace]
    return {
        resource + (f"={','.join(rule.names)}" if rule.names else ""): rule.verbs
        for grant in matches
        for rule in grant.rules
        for resource in rule.resources
    }


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("apps/v1/Deployment", GroupResource("apps", "deployments")),
        ("v1/Endpoints", GroupResource("", "endpoints")),
        ("networking.k8s.io/v1/NetworkPolicy", GroupResource("networking.k8s.io", "networkpolicies")),
        ("networking.k8s.io/v1/Ingress", GroupResource("networking.k8s.io", "ingresses")),
        ("v1/Namespace", GroupResource("", "namespaces", False)),
        ("storage.k8s.io/v1/StorageClass", GroupResource("storage.k8s.io", "storageclasses", False)),
        (Policy, GroupResource("example.com", "policies", False)),
    ],
)
def test_a_kind_maps_to_its_resource(kind: Any, target: GroupResource) -> None:
    assert GroupResource.of(kind) == target


def test_a_controller_gets_exactly_the_declared_rights() -> None:
    declared = rights(events=False, controller={"watches": (GroupResource.of("v1/ConfigMap"),)})
    assert rules_of(declared) == {
        "myapps": ("get", "list", "watch"),
        "myapps/status": ("patch",),
        "myapps/finalizers": ("update",),
        "deployments": ("get", "list", "watch", "create", "patch", "delete"),
        "services": ("get", "list", "watch", "create", "patch", "delete"),
        "configmaps": ("get", "list", "watch"),
    }


def test_a_finalizer_needs_the_right_to_patch_the_resource() -> None:
    assert rules_of(rights(controller={"finalizer": True}))["myapps"] == ("get", "list", "watch", "patch")


def test_a_controller_that_owns_nothing_and_writes_no_status_only_reads() -> None:
    declared = rights(events=False, controller={"owns": (), "status": False})
    assert rules_of(declared) == {"myapps": ("get", "list", "watch")}


def test_a_lease_is_granted_by_name_in_the_operators_own_namespace() -> None:
    assert rules_of(rights(lease="lock"), "system") == {
        "leases": ("create",),
        "leases=lock": ("get", "update"),
    }


def test_a_lease_in_another_namespace_is_granted_there() -> None:
    declared = rights(lease="lock", lease_namespace="locks")
    assert "leases=lock" in rules_of(declared, "locks")
    assert "leases=lock" not in rules_of(declared, "system")


def test_webhooks_are_granted_by_name() -> None:
    webhooks = WebhookRights(validating="v", mutating="m", conversion=("myapps.example.com",), secret="certs")
    declared = rights(webhooks=webhooks)
    everywhere = rules_of(declared)
    assert everywhere["validatingwebhookconfigurations=v"] == ("get", "patch")
    assert everywhere["mutatingwebhookconfigurations=m"] == ("get", "patch")
    assert everywhere["customresourcedefinitions=myapps.example.com"] == ("get", "patch")
    assert "secrets" not in everywhere
    assert rules_of(declared, "system")["secrets=certs"] == ("get", "update")


def test_a_registration_that_has_no_webhooks_any_more_may_be_deleted_by_name() -> None:
    everywhere = rules_of(rights(webhooks=WebhookRights(former_validating="shop", mutating="shop")))
    assert everywhere["validatingwebhookconfigurations=shop"] == ("get", "delete")
    assert everywhere["mutatingwebhookconfigurations=shop"] == ("get", "patch")


def test_a_cluster_wide_right_is_not_granted_again_in_a_namespace() -> None:
    extra = (rule_for("v1/Secret", "get", "create"),)
    declared = rights(webhooks=WebhookRights(secret="certs"), controller={"rules": extra})
    assert rules_of(declared)["secrets"] == ("get", "create")
    assert rules_of(declared, "system") == {"secrets=certs": ("update",)}


def test_an_operator_limited_to_namespaces_has_roles_only_there() -> None:
    declared = rights(namespaces=("a", "b"), lease="lock")
    assert [grant.namespace for grant in grants(declared, namespace="system")] == ["a", "b", "system"]
    assert rules_of(declared, "a") == rules_of(declared, "b")
    assert "leases" not in rules_of(declared, "a")


def test_cluster_scoped_resources_are_granted_cluster_wide_even_then() -> None:
    declared = rights(namespaces=("a",), controller={"watches": (GroupResource.of("v1/Namespace"),)})
    assert rules_of(declared) == {"namespaces": ("get", "list", "watch")}
    with pytest.raises(ValueError, match=r"a Role cannot grant .* on namespaces"):
        grants(declared, namespace="system", scope="Role")


def test_events_about_cluster_scoped_resources_are_granted_in_the_default_namespace() -> None:
    declared = rights(namespaces=("a",), controller={"resource": GroupResource.of(Policy), "owns": ()})
    assert rules_of(declared, "default") == {"events": ("create", "patch")}
    assert rules_of(msgspec.structs.replace(declared, namespaces=()), "default") == {}, "they are everywhere"


def test_a_role_for_all_namespaces_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs a ClusterRole"):
        grants(rights(), namespace="system", scope="Role")


def test_a_cluster_role_can_be_forced() -> None:
    declared = rights(namespaces=("a",))
    assert [grant.namespace for grant in grants(declared, namespace="a", scope="ClusterRole")] == [None]


def test_additional_rights_are_merged_in() -> None:
    extra = (rule_for("v1/Secret", "get"), rule_for("apps/v1/Deployment", "update"))
    rules = rules_of(rights(controller={"rules": extra}))
    assert rules["secrets"] == ("get",)
    assert rules["deployments"] == ("get", "list", "watch", "create", "update", "patch", "delete")


def test_a_named_right_that_a_general_one_includes_is_omitted() -> None:
    extra = (rule_for("v1/Secret", "get"), rule_for("v1/Secret", "get", "patch", names=["one"]))
    rules = rules_of(rights(controller={"rules": extra}))
    assert rules["secrets"] == ("get",)
    assert rules["secrets=one"] == ("patch",)


def test_an_unknown_verb_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown verbs read: use get, list"):
        rule_for("v1/Secret", "read")


def test_manifests_are_an_account_its_roles_and_their_bindings() -> None:
    made = rbac_manifests(rights(lease="lock"), name="my-operator", namespace="system")
    assert [(each["kind"], each["metadata"].get("namespace")) for each in made] == [
        ("ServiceAccount", "system"),
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "system"),
        ("RoleBinding", "system"),
    ]
    assert made[2]["subjects"] == [{"kind": "ServiceAccount", "name": "my-operator", "namespace": "system"}]
    assert {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": list(rules_of(rights())["deployments"]),
    } in (made[1]["rules"])
    assert made == rbac_manifests(rights(lease="lock"), name="my-operator", namespace="system")


def test_an_invalid_account_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="invalid service account name"):
        rbac_manifests(rights(), name="My_Operator", namespace="system")

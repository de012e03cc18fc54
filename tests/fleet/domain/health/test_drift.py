"""Drift: which fields of a manifest somebody else has changed, by the owners that the API server records."""

from __future__ import annotations

from typing import Any

from kapsa.fleet.domain.health.drift import changed_fields

Tree = dict[str, Any]
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "widget", "labels": {"app.kubernetes.io/name": "widget"}},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "manager",
                        "image": "widget:1",
                        "args": ["--fast"],
                        "ports": [{"containerPort": 80}],
                    }
                ]
            }
        },
    },
}
PORT = 'k:{"containerPort":80,"protocol":"TCP"}'


def entry(manager: str, fields: Tree, **more: Any) -> Tree:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def container(**fields: Tree) -> Tree:
    """Return the owned fields of a container."""
    owned = {f"f:{name}": tree for name, tree in fields.items()}
    return {"f:template": {"f:spec": {"f:containers": {'k:{"name":"manager"}': {".": {}, **owned}}}}}


def helm(*missing: str) -> Tree:
    """Return the entry of Helm, without some fields that it has lost."""
    names = {"image": {}, "args": {}, "name": {}, "ports": {PORT: {".": {}, "f:containerPort": {}}}}
    kept = container(**{name: tree for name, tree in names.items() if name not in missing})
    spec = {**kept, **({} if "replicas" in missing else {"f:replicas": {}})}
    labels = {"f:labels": {"f:app.kubernetes.io/name": {}}}
    return entry("helm", {"f:metadata": labels, "f:spec": spec})


def drift(*entries: Tree) -> list[tuple[str, str]]:
    return list(changed_fields(DEPLOYMENT, list(entries), "helm"))


def test_an_object_whose_fields_helm_owns_has_not_drifted() -> None:
    status = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status")
    sharing = entry("argocd", {"f:spec": {"f:replicas": {}}})
    assert drift(helm(), status, sharing) == []


def test_each_field_that_another_manager_took_is_named_with_it() -> None:
    scaler = entry("autoscaler", {"f:spec": {"f:replicas": {}}}, subresource="scale")
    editor = entry("kubectl-edit", {"f:spec": container(image={}, args={})})
    assert drift(helm("replicas", "image", "args"), scaler, editor) == [
        (".spec.replicas", "autoscaler (scale)"),
        ('.spec.template.spec.containers[name="manager"].image', "kubectl-edit"),
        ('.spec.template.spec.containers[name="manager"].args', "kubectl-edit"),
    ]


def test_an_item_is_recognized_although_the_api_server_has_completed_its_key() -> None:
    lost = helm("ports")
    taken = entry("kubectl-edit", {"f:spec": container(ports={PORT: {".": {}, "f:containerPort": {}}})})
    port = (
        '.spec.template.spec.containers[name="manager"].ports[containerPort=80,protocol="TCP"].containerPort'
    )
    assert drift(lost, taken) == [(port, "kubectl-edit")]


def test_a_field_that_nobody_owns_says_nothing() -> None:
    # The fleet scales controllers, and gives the field up afterwards; the API server drops unknown fields.
    assert drift(helm("replicas", "image")) == []


def test_an_object_that_was_installed_under_another_name_and_garbage_say_nothing() -> None:
    terraform = entry("terraform-provider-helm", {"f:spec": {"f:replicas": {}}})
    assert drift(terraform) == []
    broken = [
        {"manager": "x"},
        {"manager": "x", "fieldsV1": []},
        "text",
        entry("x", {"f:spec": 3, "k:{": {}}),
    ]
    assert drift(helm(), *broken) == []  # type: ignore[arg-type] - an answer of a hostile cluster
    assert list(changed_fields(DEPLOYMENT, {"not": "a list"}, "helm")) == []

"""Field ownership: distinguishing a change of our fields by another manager from all other changes."""

from typing import Any

import pytest

from kapsa.runtime.controller.apply._field_ownership import (
    digest,
    drifted_paths,
    extracted,
    holds,
    managers_of,
    projection,
)

FIELDS = {
    "f:metadata": {"f:labels": {"f:app": {}}, "f:ownerReferences": {'k:{"uid":"u"}': {}}},
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"web"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:ports": {
                            'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                        },
                    }
                }
            }
        },
    },
}


def deployment(**changes: Any) -> dict[str, Any]:
    container = {"name": "web", "image": changes.get("image", "nginx"), "ports": [{"containerPort": 80}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": [{"uid": "u"}],
        },
        "spec": {"replicas": changes.get("replicas", 2), "template": {"spec": {"containers": [container]}}},
    }


def live(**changes: Any) -> dict[str, Any]:
    """Return the deployment with what the server and another manager add: defaults, a status, a container."""
    manifest = deployment(**changes)
    spec = manifest["spec"]["template"]["spec"]
    spec["dnsPolicy"] = "ClusterFirst"
    spec["containers"][0] |= {
        "imagePullPolicy": "Always",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
    }
    spec["containers"].insert(0, {"name": "sidecar", "image": "proxy"})
    manifest["metadata"]["labels"]["added-by"] = "kubectl"
    manifest["status"] = {"readyReplicas": 2}
    return manifest


def test_applied_fields_hold_when_the_server_and_other_managers_add_theirs() -> None:
    assert holds(FIELDS, deployment(), live())


@pytest.mark.parametrize("changes", [{"replicas": 5}, {"image": "nginx:evil"}])
def test_a_changed_field_of_ours_does_not_hold(changes: dict[str, Any]) -> None:
    assert not holds(FIELDS, deployment(), live(**changes))


def test_a_field_that_we_own_and_no_longer_desire_does_not_hold() -> None:
    desired = deployment()
    del desired["spec"]["replicas"]
    assert not holds(FIELDS, desired, live())


def test_a_field_that_we_desire_and_do_not_own_does_not_hold() -> None:
    desired = deployment()
    desired["spec"]["paused"] = True
    changed = live()
    changed["spec"]["paused"] = True
    assert not holds(FIELDS, desired, changed)


def test_the_projection_contains_only_our_fields() -> None:
    before, after = live(), live()
    after["status"] = {"readyReplicas": 0}
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "another-proxy"
    assert digest(projection(FIELDS, before)) == digest(projection(FIELDS, after))
    assert digest(projection(FIELDS, before)) != digest(projection(FIELDS, live(replicas=5)))


def test_drifted_fields_are_reported_as_field_paths() -> None:
    drifted = list(drifted_paths(FIELDS, deployment(), live(replicas=5, image="nginx:evil")))
    assert ".spec.replicas" in drifted
    assert ".spec.template.spec.containers[name=web].image" in drifted
    assert len(drifted) == 2


def test_the_manager_that_owns_a_drifted_field_is_reported() -> None:
    managed = [
        {"manager": "us", "operation": "Apply", "fieldsV1": FIELDS},
        {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}},
    ]
    assert managers_of(managed, [".spec.replicas"], ours="us") == {"kubectl-edit": [".spec.replicas"]}


def test_a_manager_that_scaled_is_reported_too() -> None:
    managed = [
        {"manager": "kubectl", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "controller", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
    ]
    assert managers_of(managed, [".spec.replicas"], ours="us") == {"kubectl": [".spec.replicas"]}


def test_a_removed_field_is_attributed_to_the_manager_of_the_last_write() -> None:
    managed = [
        {"manager": "old", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}},
        {"manager": "kubectl-edit", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}},
    ]
    assert managers_of(managed, [".spec.replicas"], ours="us") == {"kubectl-edit": [".spec.replicas"]}


def test_an_empty_map_or_list_that_the_server_does_not_store_holds() -> None:
    desired = {"metadata": {"name": "a", "annotations": {}}, "spec": {"replicas": 1, "args": []}}
    live = {"metadata": {"name": "a"}, "spec": {"replicas": 1}}
    recorded = {"f:metadata": {"f:annotations": {}}, "f:spec": {"f:replicas": {}, "f:args": {}}}
    assert holds(recorded, desired, live)
    assert holds(
        {"f:metadata": {}, "f:spec": {"f:replicas": {}}},
        {**desired, "metadata": {}},
        {**live, "metadata": {}},
    )
    assert not holds(recorded, desired, {"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1}})
    assert not holds(recorded, {**desired, "spec": {"replicas": 1, "args": ["x"]}}, live)


def test_what_was_applied_is_extracted_without_defaults_and_the_fields_of_others() -> None:
    expected = deployment()
    expected["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"  # a part of the key
    metadata = {field: expected["metadata"][field] for field in ("labels", "ownerReferences")}
    assert extracted(FIELDS, live()) == {"metadata": metadata, "spec": expected["spec"]}


def test_an_empty_map_is_extracted_without_what_others_have_in_it() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:labels": {".": {}}, "f:taints": {".": {}}, "f:whole": {}}}
    value = {"spec": {"labels": {"a": "b"}, "taints": [{"key": "x"}], "whole": {"c": 1}}}
    assert extracted(fields, value) == {"spec": {"labels": {}, "taints": [], "whole": {"c": 1}}}


def test_items_are_extracted_in_the_order_of_the_list() -> None:
    fields: dict[str, Any] = {
        "f:args": {'v:"b"': {}, 'v:"a"': {}},
        "f:env": {'k:{"name":"y"}': {"f:value": {}}},
    }
    value = {"args": ["a", "other", "b"], "env": [{"name": "x"}, {"name": "y", "value": "1", "more": True}]}
    assert extracted(fields, value) == {"args": ["a", "b"], "env": [{"name": "y", "value": "1"}]}

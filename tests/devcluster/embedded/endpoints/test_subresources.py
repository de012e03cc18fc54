"""Subresources: scale, eviction, binding, and those that need a node."""

from __future__ import annotations

import pytest
import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CRDS, PODS, WIDGET_DEFINITION, WIDGETS, Api, Object

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
POD: Object = {
    "metadata": {"name": "one", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def deployment(name: str = "web", replicas: int = 2) -> dict[str, object]:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


async def test_a_deployment_is_scaled_through_its_scale(api: Api):
    await api.post(DEPLOYMENTS, deployment())
    scale = await api.get(f"{DEPLOYMENTS}/web/scale")
    assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale.body["spec"] == {"replicas": 2}
    assert scale.body["status"] == {"replicas": 0, "selector": "app=web"}
    more = await api.put(f"{DEPLOYMENTS}/web/scale", {**scale.body, "spec": {"replicas": 5}})
    assert more.body["spec"] == {"replicas": 5}
    patched = await api.merge(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 7}})
    assert patched.body["spec"] == {"replicas": 7}
    web = await api.get(f"{DEPLOYMENTS}/web")
    assert web.body["spec"]["replicas"] == 7
    assert web.meta["generation"] == 3


async def test_a_stale_scale_is_a_conflict(api: Api):
    await api.post(DEPLOYMENTS, deployment())
    scale = await api.get(f"{DEPLOYMENTS}/web/scale")
    await api.merge(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    refused = await api.put(f"{DEPLOYMENTS}/web/scale", scale.body)
    assert refused.status == 409


async def test_a_custom_resource_is_scaled_at_the_path_of_its_definition(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
    await api.post(WIDGETS, body)
    await api.merge(f"{WIDGETS}/w/status", {"status": {"size": 1}})
    scale = await api.get(f"{WIDGETS}/w/scale")
    assert (scale.body["spec"], scale.body["status"]) == ({"replicas": 1}, {"replicas": 1})
    assert (await api.merge(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})).status == 200
    assert (await api.get(f"{WIDGETS}/w")).body["spec"]["size"] == 4


async def test_a_negative_scale_is_invalid(api: Api):
    await api.post(DEPLOYMENTS, deployment())
    refused = await api.merge(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}})
    assert refused.status == 422
    assert "must be greater than or equal to 0" in refused.message


async def test_a_pod_is_bound_to_a_node_once(api: Api):
    await api.post(PODS, POD)
    binding = {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await api.post(f"{PODS}/one/binding", binding)).status == 201
    assert (await api.get(f"{PODS}/one")).body["spec"]["nodeName"] == "n1"
    again = await api.post(f"{PODS}/one/binding", binding)
    assert again.status == 409
    assert 'pod one is already assigned to node "n1"' in again.message


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVICTION = {"metadata": {"name": "one"}}
READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
ONE_ALLOWED = {
    "status": {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
}


async def guarded_pod(api: Api) -> None:
    """Create a ready pod, and a budget that nothing has counted yet."""
    await api.post(PODS, POD)
    await api.merge(f"{PODS}/one/status", READY)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await api.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})


async def test_an_eviction_respects_the_disruption_budget(api: Api):
    await guarded_pod(api)
    refused = await api.post(f"{PODS}/one/eviction", EVICTION)
    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await api.merge(f"{BUDGETS}/b/status", ONE_ALLOWED)
    assert (await api.post(f"{PODS}/one/eviction", EVICTION)).status == 201
    assert (await api.get(f"{PODS}/one")).status == 404
    assert (await api.get(f"{BUDGETS}/b")).body["status"]["disruptionsAllowed"] == 0


async def test_a_dry_run_of_an_eviction_keeps_the_pod_and_its_budget(api: Api):
    await guarded_pod(api)
    await api.merge(f"{BUDGETS}/b/status", ONE_ALLOWED)
    before = await api.get(f"{PODS}/one")
    by_query = await api.send("POST", f"{PODS}/one/eviction", EVICTION, dryRun="All")
    in_body = await api.post(f"{PODS}/one/eviction", {**EVICTION, "deleteOptions": {"dryRun": ["All"]}})
    assert (by_query.status, in_body.status) == (201, 201)
    assert (await api.get(f"{PODS}/one")).body == before.body
    assert (await api.get(f"{BUDGETS}/b")).body["status"]["disruptionsAllowed"] == 1


async def test_an_eviction_of_an_unready_pod_takes_nothing_from_a_healthy_budget(api: Api):
    await guarded_pod(api)
    await api.merge(f"{BUDGETS}/b/status", ONE_ALLOWED)
    await api.merge(f"{PODS}/one/status", {"status": {"conditions": []}})
    assert (await api.post(f"{PODS}/one/eviction", EVICTION)).status == 201
    assert (await api.get(f"{BUDGETS}/b")).body["status"]["disruptionsAllowed"] == 1


@pytest.mark.parametrize("below", ["exec", "attach", "portforward", "proxy"])
async def test_subresources_that_need_a_node_are_rejected(api: Api, below: str):
    await api.post(PODS, POD)
    answer = await api.get(f"{PODS}/one/{below}")
    assert answer.status == 501
    assert "use the real engine" in answer.message


async def test_an_unknown_subresource_is_not_found(api: Api):
    await api.post(PODS, POD)
    assert (await api.get(f"{PODS}/one/nonsense")).status == 404
    assert (await api.send("DELETE", f"{PODS}/one/status")).status == 405


@pytest.mark.parametrize("part", ["ephemeralcontainers", "resize"])
async def test_a_patch_of_a_part_of_a_pod_changes_nothing_else(api: Api, part: str):
    created = await api.post(PODS, POD)
    patch = {
        "metadata": {"labels": {"app": "other"}},
        "spec": {"hostNetwork": True, "nodeName": "other", "containers": [{"name": "c", "image": "other"}]},
    }
    patched = await api.merge(f"{PODS}/one/{part}", patch)
    assert patched.body["spec"] == created.body["spec"]
    assert patched.meta["labels"] == {"app": "web"}


async def test_an_ephemeral_container_is_neither_changed_nor_removed(api: Api):
    await api.post(PODS, POD)
    path = f"{PODS}/one/ephemeralcontainers"
    await api.merge(path, {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "first"}]}})
    for containers in ([], [{"name": "debugger", "image": "second"}]):
        answer = await api.merge(path, {"spec": {"ephemeralContainers": containers}})
        assert answer.status == 422


@pytest.mark.parametrize("amounts", [{"cpu": "-1"}, {"cpu": "1", "example.com/gpu": "1"}, {"cpu": "1"}])
async def test_a_resize_keeps_to_the_rules_of_amounts_and_to_the_quality_of_service(
    api: Api, amounts: dict[str, str]
):
    await api.post(PODS, POD)
    containers = [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    answer = await api.merge(f"{PODS}/one/resize", {"spec": {"containers": containers}})
    assert answer.status == 422


async def test_a_pod_is_bound_at_the_path_of_bindings_too(api: Api):
    await api.post(PODS, POD)
    binding = {"metadata": {"name": "one", "labels": {"zone": "a"}}, "target": {"name": "node"}}
    answer = await api.post("/api/v1/namespaces/default/bindings", binding)
    assert answer.status == 201
    pod = await api.get(f"{PODS}/one")
    assert pod.body["spec"]["nodeName"] == "node"
    assert pod.meta["labels"] == {"app": "web", "zone": "a"}


@pytest.mark.parametrize(
    ("metadata", "target", "status"),
    [
        ({"name": "two"}, {"name": "node"}, 400),
        ({"name": "one", "uid": "another"}, {"name": "node"}, 409),
        ({"name": "one"}, {"name": "node", "kind": "Pod"}, 500),
    ],
)
async def test_a_binding_that_is_not_for_the_pod_assigns_no_node(
    api: Api, metadata: dict[str, str], target: dict[str, str], status: int
):
    await api.post(PODS, POD)
    answer = await api.post(f"{PODS}/one/binding", {"metadata": metadata, "target": target})
    assert answer.status == status
    assert "nodeName" not in (await api.get(f"{PODS}/one")).body["spec"]


async def test_a_pod_with_scheduling_gates_gets_no_node(api: Api):
    await api.post(PODS, {**POD, "spec": {**POD["spec"], "schedulingGates": [{"name": "example.com/a"}]}})
    binding = {"metadata": {"name": "one"}, "target": {"name": "node"}}
    assert (await api.post(f"{PODS}/one/binding", binding)).status == 409
    added = {"spec": {"schedulingGates": [{"name": "example.com/b"}]}}
    assert (await api.merge(f"{PODS}/one", added)).status == 422
    await api.merge(f"{PODS}/one", {"spec": {"schedulingGates": []}})
    assert (await api.post(f"{PODS}/one/binding", binding)).status == 201


async def test_an_update_cannot_take_the_image_of_a_container_away(api: Api):
    await api.post(PODS, POD)
    answer = await api.merge(f"{PODS}/one", {"spec": {"containers": [{"name": "c", "image": ""}]}})
    assert answer.status == 422
    assert "spec.containers[0].image: Required value" in answer.message

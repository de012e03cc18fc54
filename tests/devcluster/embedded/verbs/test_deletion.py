"""Deletion: finalizers, grace, preconditions, propagation, collections and namespaces."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from kapsa.devcluster import VirtualClock
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, PODS, WIDGET_DEFINITION, WIDGETS, Api, configmap

pytestmark = pytest.mark.virtual_time
ONE = f"{CONFIGMAPS}/one"


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server(Backend(clock=VirtualClock())))


def held(*finalizers: str) -> dict[str, object]:
    body = configmap("one")
    body["metadata"]["finalizers"] = list(finalizers)
    return body


async def test_a_delete_returns_a_status_that_identifies_the_object(api: Api):
    created = await api.configmap("one")
    gone = await api.delete(ONE)
    assert gone.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "one", "kind": "configmaps", "uid": created.meta["uid"]},
    }
    assert (await api.delete(ONE)).status == 404


async def test_an_object_with_finalizers_waits_for_them(api: Api):
    await api.post(CONFIGMAPS, held("example.com/a", "example.com/b"))
    marked = await api.delete(ONE)
    assert marked.meta["deletionTimestamp"]
    assert marked.meta["deletionGracePeriodSeconds"] == 0
    again = await api.delete(ONE)
    assert again.meta["deletionTimestamp"] == marked.meta["deletionTimestamp"]
    assert again.revision == marked.revision
    await api.merge(ONE, {"metadata": {"finalizers": ["example.com/b"]}})
    assert (await api.get(ONE)).status == 200
    assert (await api.merge(ONE, {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(ONE)).status == 404


async def test_the_last_finalizer_ends_the_object_with_one_deleted_event(api: Api):
    created = await api.post(CONFIGMAPS, held("example.com/a"))
    async with api.watch(CONFIGMAPS, resourceVersion=created.revision) as watch:
        await api.delete(ONE)
        await api.merge(ONE, {"metadata": {"finalizers": None}})
        assert await watch.take(2) == [("MODIFIED", "one"), ("DELETED", "one")]


async def test_no_finalizer_can_be_added_to_a_terminating_object(api: Api):
    await api.post(CONFIGMAPS, held("example.com/a"))
    await api.delete(ONE)
    refused = await api.merge(ONE, {"metadata": {"finalizers": ["example.com/a", "example.com/late"]}})
    assert refused.status == 422
    assert (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/late"}' in refused.message
    )


async def test_a_name_is_in_use_until_its_object_is_gone(api: Api):
    await api.post(CONFIGMAPS, held("example.com/a"))
    await api.delete(ONE)
    refused = await api.post(CONFIGMAPS, configmap("one"))
    assert refused.status == 409
    assert refused.message == 'object is being deleted: configmaps "one" already exists'


async def test_an_update_cannot_undo_a_deletion(api: Api):
    await api.post(CONFIGMAPS, held("example.com/a"))
    marked = await api.delete(ONE)
    body = configmap("one", a="1")
    body["metadata"]["finalizers"] = ["example.com/a"]
    kept = await api.put(ONE, body)
    assert kept.meta["deletionTimestamp"] == marked.meta["deletionTimestamp"]


@pytest.mark.parametrize(
    ("preconditions", "message"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record",
        ),
    ],
)
async def test_a_precondition_protects_another_object(api: Api, preconditions: dict[str, str], message: str):
    created = await api.configmap("one")
    refused = await api.delete(ONE, {"preconditions": preconditions})
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert message in refused.message
    right = {"uid": created.meta["uid"], "resourceVersion": created.meta["resourceVersion"]}
    assert (await api.delete(ONE, {"preconditions": right})).status == 200


@pytest.mark.parametrize(
    ("options", "finalizer"),
    [
        ({"propagationPolicy": "Foreground"}, "foregroundDeletion"),
        ({"propagationPolicy": "Orphan"}, "orphan"),
        ({"orphanDependents": True}, "orphan"),
    ],
)
async def test_a_propagation_policy_is_a_finalizer(api: Api, options: dict[str, object], finalizer: str):
    await api.configmap("one")
    marked = await api.delete(ONE, options)
    assert marked.meta["finalizers"] == [finalizer]
    assert marked.meta["deletionTimestamp"]


async def test_contradictory_options_are_rejected(api: Api):
    await api.configmap("one")
    both = await api.delete(ONE, {"propagationPolicy": "Orphan", "orphanDependents": False})
    assert both.status == 422
    unknown = await api.delete(ONE, propagationPolicy="Sideways")
    assert unknown.status == 422
    assert 'Unsupported value: "Sideways"' in unknown.message


@pytest.mark.parametrize("seconds", ["--5", "x", "9" * 5000])
async def test_a_grace_period_that_is_not_a_number_is_rejected(api: Api, seconds: str):
    await api.configmap("one")
    refused = await api.delete(ONE, gracePeriodSeconds=seconds)
    assert refused.status == 400
    assert refused.message.startswith("strconv.ParseInt: parsing")


async def test_a_deletion_increments_the_generation_of_a_kind_that_has_one(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one", "finalizers": ["example.com/a"]},
    }
    await api.post(WIDGETS, body)
    assert (await api.delete(f"{WIDGETS}/one")).meta["generation"] == 2


def pod(node: str = "", **spec: object) -> dict[str, object]:
    return {
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **spec},
    }


async def test_a_pod_on_a_node_has_a_grace_period_that_can_be_shortened(api: Api):
    await api.post(PODS, pod("n", terminationGracePeriodSeconds=60))
    ending = await api.delete(f"{PODS}/one")
    assert ending.meta["deletionGracePeriodSeconds"] == 60
    assert ending.meta["deletionTimestamp"] == "2026-01-01T00:01:00Z"
    longer = await api.delete(f"{PODS}/one", gracePeriodSeconds=90)
    assert longer.meta["deletionGracePeriodSeconds"] == 60
    await asyncio.sleep(5)
    sooner = await api.delete(f"{PODS}/one", gracePeriodSeconds=10)
    assert sooner.meta["deletionTimestamp"] == "2026-01-01T00:00:10Z"
    assert (await api.delete(f"{PODS}/one", gracePeriodSeconds=0)).status == 200
    assert (await api.get(f"{PODS}/one")).status == 404


async def test_a_pod_without_a_node_is_deleted_at_once(api: Api):
    await api.post(PODS, pod())
    assert (await api.delete(f"{PODS}/one")).status == 200
    assert (await api.get(f"{PODS}/one")).status == 404


async def test_a_collection_is_deleted_by_its_selectors(api: Api):
    await api.configmap("a", {"app": "x"})
    await api.configmap("b", {"app": "x"})
    await api.configmap("c", {"app": "y"})
    gone = await api.delete(CONFIGMAPS, labelSelector="app=x")
    assert gone.names == ["a", "b"]
    assert (await api.get(CONFIGMAPS)).names == ["c"]


async def test_nothing_is_created_in_a_missing_or_terminating_namespace(api: Api):
    missing = await api.post("/api/v1/namespaces/nope/configmaps", configmap("one"))
    assert (missing.status, missing.message) == (404, 'namespaces "nope" not found')
    await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    ending = await api.delete("/api/v1/namespaces/team")
    assert ending.body["status"]["phase"] == "Terminating"
    assert ending.body["spec"]["finalizers"] == ["kubernetes"]
    refused = await api.post("/api/v1/namespaces/team/configmaps", configmap("one"))
    assert refused.status == 403
    assert refused.message == (
        'configmaps "one" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert refused.body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]


async def test_a_namespace_is_removed_when_it_is_finalized(api: Api):
    path = "/api/v1/namespaces/team"
    created = await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.delete(path)
    body = {**created.body, "spec": {"finalizers": []}}
    body["metadata"].pop("resourceVersion")
    assert (await api.put(f"{path}/finalize", body)).status == 200
    assert (await api.get(path)).status == 404


async def test_the_namespaces_of_the_system_cannot_be_deleted(api: Api):
    refused = await api.delete("/api/v1/namespaces/default")
    assert refused.status == 403
    assert refused.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_a_cluster_starts_with_its_system_namespaces(api: Api):
    listed = await api.get("/api/v1/namespaces")
    assert listed.names == ["default", "kube-node-lease", "kube-public", "kube-system"]

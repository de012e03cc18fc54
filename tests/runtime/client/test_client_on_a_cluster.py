"""The client's methods against a cluster, over HTTP, on either engine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from kapsa.devcluster import DevCluster
from kapsa.runtime import errors
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.reader import Reader
from kapsa.runtime.client.watch import Bookmark, WatchEvent


@pytest_asyncio.fixture
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with Client.connect(kubeconfig=cluster.kubeconfig, field_manager="tester") as client:
        namespace: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"generateName": "client-"},
        }
        created = await client.create(namespace)
        client.namespace = created["metadata"]["name"]
        yield client
        await client.delete("v1/Namespace", client.namespace)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


KIND = "v1/ConfigMap"


async def test_an_object_is_created_read_replaced_patched_and_deleted(client: Client) -> None:
    created = await client.create(config_map("a", x="1"))
    assert await client.get(KIND, "a") == created
    created["data"]["x"] = "2"
    replaced = await client.replace(created)
    assert replaced["data"] == {"x": "2"}
    assert (await client.patch(KIND, "a", {"data": {"y": "3"}}))["data"] == {"x": "2", "y": "3"}
    removal = [{"op": "test", "path": "/data/y", "value": "3"}, {"op": "remove", "path": "/data/y"}]
    assert (await client.patch(KIND, "a", removal, type="json"))["data"] == {"x": "2"}
    assert await client.delete(KIND, "a") is True
    with pytest.raises(errors.NotFound) as gone:
        await client.get(KIND, "a")
    assert not gone.value.resource_missing


async def test_each_error_has_its_type(client: Client) -> None:
    created = await client.create(config_map("a"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(config_map("a"))
    await client.patch(KIND, "a", {"data": {"x": "1"}})
    with pytest.raises(errors.Conflict):
        await client.replace(created)
    with pytest.raises(errors.Conflict):
        await client.delete(KIND, "a", uid="another")
    with pytest.raises(errors.Conflict):
        await client.delete(KIND, "a", resource_version=created["metadata"]["resourceVersion"])
    with pytest.raises(errors.Invalid) as invalid:
        await client.create(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {}}
        )
    assert "spec.selector" in {cause.field for cause in invalid.value.causes}
    with pytest.raises(errors.UnknownKind):
        await client.get("absent.example.com/v1/Nothing", "x")
    with pytest.raises(errors.BadRequest):
        await client.create({**config_map("b"), "surprise": 1}, field_validation="Strict")


async def test_apply_owns_fields_reports_conflicting_managers_and_takes_over_by_force(client: Client) -> None:
    await client.apply(config_map("a", x="1"))
    other = client.derive(field_manager="other")
    with pytest.raises(errors.Conflict) as conflict:
        await other.apply(config_map("a", x="2"))
    assert [(cause.field, cause.message) for cause in conflict.value.causes] == [
        (".data.x", 'conflict with "tester"')
    ]
    assert (await other.apply(config_map("a", x="2"), force=True))["data"] == {"x": "2"}


async def test_a_dry_run_stores_nothing(client: Client) -> None:
    await client.apply(config_map("dry"), dry_run=True)
    with pytest.raises(errors.NotFound):
        await client.get(KIND, "dry")


async def test_a_list_in_pages_is_the_whole_list_of_one_revision(client: Client) -> None:
    for number in range(7):
        await client.create(config_map(f"c{number}", n=str(number)))
    listed = await client.list(KIND, namespace=client.namespace, limit=3)
    names = [item["metadata"]["name"] for item in listed.items if item["metadata"]["name"].startswith("c")]
    assert names == [f"c{number}" for number in range(7)]
    assert [item["metadata"]["name"] for item in listed if item["metadata"]["name"].startswith("c")] == names
    assert len(listed) == len(listed.items)
    assert listed.items[0]["kind"] == "ConfigMap"
    assert listed.resource_version
    pages = [page async for page in client.pages(KIND, namespace=client.namespace, limit=3)]
    assert {page.resource_version for page in pages} == {pages[0].resource_version}
    only = await client.list(KIND, namespace=client.namespace, field_selector="metadata.name=c3")
    assert [item["data"] for item in only.items] == [{"n": "3"}]


async def test_a_metadata_only_read_carries_no_data(client: Client) -> None:
    await client.create(config_map("a", x="1"))
    assert "data" not in await client.get(KIND, "a", metadata_only=True)
    listed = await client.list(KIND, namespace=client.namespace, metadata_only=True)
    assert all("data" not in item for item in listed.items)


async def test_a_watch_delivers_changes_from_a_resource_version_on(client: Client) -> None:
    start = (await client.list(KIND, namespace=client.namespace)).resource_version
    big = "x" * 900_000
    await client.create(config_map("a", x="1"))
    await client.patch(KIND, "a", {"data": {"x": big}})
    await client.delete(KIND, "a")
    seen: list[tuple[str, str]] = []
    watching = client.watch(KIND, namespace=client.namespace, resource_version=start, timeout_seconds=30)
    async with asyncio.timeout(20), contextlib.aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, WatchEvent) and event.object["metadata"]["name"] == "a":
                seen.append((event.type, event.object["data"]["x"]))
            if seen and seen[-1][0] == "DELETED":
                break
    assert seen == [("ADDED", "1"), ("MODIFIED", big), ("DELETED", big)]


async def test_a_streaming_list_ends_with_its_bookmark(client: Client) -> None:
    await client.create(config_map("a"))
    names = set()
    watching = client.watch(KIND, namespace=client.namespace, send_initial_events=True, timeout_seconds=30)
    async with asyncio.timeout(20), contextlib.aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Bookmark):
                assert event.initial_events_end
                break
            names.add(event.object["metadata"]["name"])
    assert "a" in names


async def test_status_and_scale_are_written_through_subresources(client: Client) -> None:
    labels = {"app": "web"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    await client.create(deployment)
    patched = await client.patch(
        "apps/v1/Deployment", "web", {"spec": {"replicas": 9}, "status": {"observedGeneration": 1}},
        subresource="status",
    )  # fmt: skip
    assert patched["spec"]["replicas"] == 0
    scale = await client.scale("apps/v1/Deployment", "web", 0)
    assert scale["kind"] == "Scale"
    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}}
    merged = await client.patch("apps/v1/Deployment", "web", strategic, type="strategic")
    (container,) = merged["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "other"


async def test_a_collection_is_deleted_by_label(client: Client) -> None:
    for name, keep in (("a", "yes"), ("b", "no")):
        await client.create({**config_map(name), "metadata": {"name": name, "labels": {"keep": keep}}})
    await client.delete_collection(KIND, label_selector={"keep": "no"})
    left = {item["metadata"]["name"] for item in (await client.list(KIND, namespace=client.namespace)).items}
    assert "a" in left
    assert "b" not in left


async def test_a_pod_is_evicted_through_its_subresource(client: Client) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    evicted = await client.create_subresource("v1/Pod", "p", "eviction", eviction)
    assert evicted["status"] == "Success"


async def test_all_served_resources_are_discovered(client: Client) -> None:
    served = {(resource.group, resource.plural) for resource in await client.discovery.resources()}
    assert {("", "pods"), ("apps", "deployments"), ("coordination.k8s.io", "leases")} <= served


def test_a_reader_has_no_verb_that_writes() -> None:
    assert not {"create", "replace", "patch", "apply", "delete", "delete_collection"} & set(dir(Reader))


async def test_each_warning_of_the_server_is_logged_once(client: Client) -> None:
    misspelt = {**config_map("a"), "dta": {"x": "1"}, "immutabel": True}
    with capture_logs() as logs:
        await client.create(misspelt)
        await client.replace(misspelt)
    warnings = [
        (line["warning"], line["request"]) for line in logs if line["event"] == "warning from the API server"
    ]
    path = f"POST /api/v1/namespaces/{client.namespace}/configmaps"
    assert sorted(warnings) == [('unknown field "dta"', path), ('unknown field "immutabel"', path)]


async def test_an_apply_with_an_unknown_field_is_rejected(client: Client) -> None:
    with pytest.raises(errors.ApiError, match="dta: field not declared in schema"):
        await client.apply({**config_map("a"), "dta": {"x": "1"}})
    assert (await client.list(KIND, namespace=client.namespace, field_selector="metadata.name=a")).items == []

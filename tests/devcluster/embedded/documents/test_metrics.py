"""The metrics of the embedded server, in the names of kube-apiserver."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.wire.exchange import Request, RequestUser
from tests.devcluster.embedded.api import CONFIGMAPS, Api


@pytest.fixture
async def api() -> Api:
    return Api(Server())


ADA = RequestUser(username="ada", groups=("system:authenticated",))


async def scrape(api: Api) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the value of each sample by its name and labels."""
    reply = await api.server.handle(Request(method="GET", path="/metrics"))
    assert reply.status == 200
    assert isinstance(reply.body, bytes)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


def configmap_requests(verb: str, scope: str, **more: str) -> frozenset[tuple[str, str]]:
    labels = {"component": "apiserver", "group": "", "version": "v1", "resource": "configmaps"}
    return frozenset(
        {**labels, "subresource": "", "dry_run": "", "verb": verb, "scope": scope, **more}.items()
    )


async def test_requests_are_counted_by_what_they_ask_for_and_how_they_end(api: Api) -> None:
    body = {"metadata": {"name": "a"}}
    await api.send("POST", CONFIGMAPS, body)
    await api.send("POST", CONFIGMAPS, body)
    await api.send("GET", CONFIGMAPS)
    await api.send("GET", f"{CONFIGMAPS}/a")
    await api.send("GET", "/api/v1/configmaps")
    samples = await scrape(api)
    name = "apiserver_request_total"
    assert samples[name, configmap_requests("POST", "resource", code="201")] == 1
    assert samples[name, configmap_requests("POST", "resource", code="409")] == 1
    assert samples[name, configmap_requests("LIST", "namespace", code="200")] == 1
    assert samples[name, configmap_requests("LIST", "cluster", code="200")] == 1
    assert samples[name, configmap_requests("GET", "resource", code="200")] == 1


async def test_durations_are_a_histogram_whose_last_bucket_has_all_requests(api: Api) -> None:
    for _ in range(3):
        await api.send("GET", CONFIGMAPS)
    samples = await scrape(api)
    name, labels = "apiserver_request_duration_seconds", configmap_requests("LIST", "namespace")
    assert samples[f"{name}_count", labels] == 3
    assert samples[f"{name}_bucket", labels | {("le", "+Inf")}] == 3
    assert samples[f"{name}_sum", labels] > 0


async def test_requests_for_what_does_not_exist_add_no_labels(api: Api) -> None:
    await api.send("GET", CONFIGMAPS)
    before = set(await scrape(api))
    for number in range(20):
        await api.send("GET", f"/api/v1/namespaces/default/wizards{number}")
        await api.send("GET", f"/apis/nowhere{number}.example.com/v1/things")
        await api.send("GET", f"{CONFIGMAPS}/a/spell{number}")
    assert set(await scrape(api)) == before


async def test_stored_objects_are_counted_by_kind(api: Api) -> None:
    await api.send("POST", CONFIGMAPS, {"metadata": {"name": "a"}})
    samples = await scrape(api)
    stored = samples["apiserver_resource_objects", frozenset({("group", ""), ("resource", "configmaps")})]
    assert samples["apiserver_storage_objects", frozenset({("resource", "configmaps")})] == stored
    assert stored >= 1


async def test_a_user_without_the_right_cannot_read_the_metrics() -> None:
    reply = await Server().handle(Request(method="GET", path="/metrics", user=ADA))
    assert reply.status == 403

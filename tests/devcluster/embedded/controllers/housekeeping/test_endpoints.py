"""Endpoints and EndpointSlices follow the pods behind a Service."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, template, workload

pytestmark = pytest.mark.virtual_time


async def test_ready_pods_are_the_addresses_of_a_service(client: ObjectClient) -> None:
    await client.create(
        "services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    )
    await client.settle()
    (empty,) = client.list("endpointslices")
    assert not empty.get("endpoints")
    await client.create("deployments", "web", workload(2))
    await client.settle()
    (one,) = client.list("endpointslices")
    assert one["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert [e["conditions"] for e in one["endpoints"]] == [
        {"ready": True, "serving": True, "terminating": False}
    ] * 2
    assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert one["metadata"]["ownerReferences"][0]["kind"] == "Service"
    ips = sorted(p["status"]["podIP"] for p in client.list("pods"))
    assert sorted(a["ip"] for a in client.get("endpoints", "web")["subsets"][0]["addresses"]) == ips


async def test_unready_and_terminating_pods_have_different_conditions(client: ObjectClient) -> None:
    await client.create("services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await client.create("deployments", "web", workload(1))
    await client.settle()
    client.workloads.stay_unready("web-*")
    await client.settle()
    (one,) = client.list("endpointslices")
    assert one["endpoints"][0]["conditions"]["ready"] is False
    assert "notReadyAddresses" in client.get("endpoints", "web")["subsets"][0]
    client.workloads.heal()
    client.workloads.delay(terminate=20)
    await client.settle()
    await client.delete("deployments", "web")
    await client.settle(1)
    (one,) = client.list("endpointslices")
    assert one["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}
    await client.settle(60)
    assert not client.list("endpointslices")[0].get("endpoints")


async def test_a_named_target_port_is_resolved_in_each_pod(client: ObjectClient) -> None:
    pod = template()
    pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 9000}]
    await client.create("pods", "lone", pod["spec"], metadata={"labels": {"app": "web"}})
    await client.create(
        "services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    )
    await client.settle()
    assert client.list("endpointslices")[0]["ports"][0]["port"] == 9000


async def test_deleting_a_service_deletes_its_endpoints(client: ObjectClient) -> None:
    await client.create("services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await client.settle()
    await client.delete("services", "web")
    await client.settle()
    assert client.names("endpointslices") == []
    assert client.find("endpoints", "web") is None

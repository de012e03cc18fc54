"""Endpoints and EndpointSlices follow the pods behind a Service."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import World, template, workload

pytestmark = pytest.mark.virtual_time


async def test_ready_pods_are_the_addresses_of_a_service(world: World) -> None:
    await world.create(
        "services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    )
    await world.settle()
    (empty,) = world.list("endpointslices")
    assert not empty.get("endpoints")
    await world.create("deployments", "web", workload(2))
    await world.settle()
    (one,) = world.list("endpointslices")
    assert one["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert [e["conditions"] for e in one["endpoints"]] == [
        {"ready": True, "serving": True, "terminating": False}
    ] * 2
    assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert one["metadata"]["ownerReferences"][0]["kind"] == "Service"
    ips = sorted(p["status"]["podIP"] for p in world.list("pods"))
    assert sorted(a["ip"] for a in world.get("endpoints", "web")["subsets"][0]["addresses"]) == ips


async def test_unready_and_terminating_pods_are_told_apart(world: World) -> None:
    await world.create("services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await world.create("deployments", "web", workload(1))
    await world.settle()
    world.workloads.stay_unready("web-*")
    await world.settle()
    (one,) = world.list("endpointslices")
    assert one["endpoints"][0]["conditions"]["ready"] is False
    assert "notReadyAddresses" in world.get("endpoints", "web")["subsets"][0]
    world.workloads.heal()
    world.workloads.delay(terminate=20)
    await world.settle()
    await world.delete("deployments", "web")
    await world.settle(1)
    (one,) = world.list("endpointslices")
    assert one["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}
    await world.settle(60)
    assert not world.list("endpointslices")[0].get("endpoints")


async def test_a_named_target_port_is_looked_up_in_each_pod(world: World) -> None:
    pod = template()
    pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 9000}]
    await world.create("pods", "lone", pod["spec"], metadata={"labels": {"app": "web"}})
    await world.create(
        "services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    )
    await world.settle()
    assert world.list("endpointslices")[0]["ports"][0]["port"] == 9000


async def test_a_deleted_service_takes_its_endpoints_along(world: World) -> None:
    await world.create("services", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await world.settle()
    await world.delete("services", "web")
    await world.settle()
    assert world.names("endpointslices") == []
    assert world.find("endpoints", "web") is None

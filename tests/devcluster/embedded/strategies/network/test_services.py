"""Services and their addresses."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer


def ports(*numbers: int, **more: Any) -> dict[str, Any]:
    return {"selector": {"app": "web"}, "ports": [{"name": f"p{n}", "port": n} for n in numbers], **more}


async def test_a_service_gets_a_cluster_ip(api: ApiServer) -> None:
    first = await api.create("services", "one", spec={"ports": [{"port": 80}]})
    second = await api.create("services", "two", spec={"ports": [{"port": 80}]})
    spec = first["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["clusterIP"] != second["spec"]["clusterIP"]
    assert (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"]) == (
        "ClusterIP",
        "None",
        "Cluster",
    )
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert first["status"] == {"loadBalancer": {}}


async def test_node_ports_are_allocated_kept_and_released(api: ApiServer) -> None:
    stored = await api.create("services", "web", spec=ports(80, 443, type="NodePort"))
    held = [port["nodePort"] for port in stored["spec"]["ports"]]
    assert len(set(held)) == 2
    assert all(30000 <= port <= 32767 for port in held)
    stored["spec"]["ports"] = [{"name": "p80", "port": 80}, {"name": "p443", "port": 443}]
    kept = await api.update("services", stored)
    assert [port["nodePort"] for port in kept["spec"]["ports"]] == held
    kept["spec"]["type"] = "ClusterIP"
    plain = await api.update("services", kept)
    assert all("nodePort" not in port for port in plain["spec"]["ports"])
    assert "externalTrafficPolicy" not in plain["spec"]
    again = await api.create("services", "other", spec={**ports(80, type="NodePort")})
    again["spec"]["ports"][0]["nodePort"] = held[0]
    assert (await api.update("services", again))["spec"]["ports"][0]["nodePort"] == held[0]


async def test_an_address_in_use_or_out_of_range_is_rejected(api: ApiServer) -> None:
    first = await api.create("services", "one", spec=ports(80))
    taken = first["spec"]["clusterIP"]
    message = await api.rejection("services", "two", spec=ports(80, clusterIP=taken))
    assert message == (
        f'Service "two" is invalid: spec.clusterIPs: Invalid value: ["{taken}"]: '
        f"failed to allocate IP {taken}: provided IP is already allocated"
    )
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}
    message = await api.rejection("services", "three", spec=spec)
    assert message.endswith(
        "provided port is not in the valid range. The range of valid ports is 30000-32767"
    )


async def test_deleting_a_service_releases_its_address(api: ApiServer) -> None:
    first = await api.create("services", "one", spec=ports(80))
    await api.delete("services", "one")
    second = await api.create("services", "two", spec=ports(80, clusterIP=first["spec"]["clusterIP"]))
    assert second["spec"]["clusterIP"] == first["spec"]["clusterIP"]


async def test_a_headless_service_has_no_cluster_ip(api: ApiServer) -> None:
    stored = await api.create("services", "db", spec=ports(5432, clusterIP="None"))
    assert (stored["spec"]["clusterIP"], stored["spec"]["clusterIPs"]) == ("None", ["None"])


async def test_an_external_name_service_has_no_addresses(api: ApiServer) -> None:
    stored = await api.create(
        "services", "db", spec={"type": "ExternalName", "externalName": "db.example.com"}
    )
    assert stored["spec"] == {
        "externalName": "db.example.com",
        "sessionAffinity": "None",
        "type": "ExternalName",
    }


async def test_a_cluster_ip_is_immutable(api: ApiServer) -> None:
    stored = await api.create("services", "web", spec=ports(80))
    stored["spec"]["clusterIP"] = "10.96.0.200"
    with pytest.raises(StatusError) as rejected:
        await api.update("services", stored)
    assert rejected.value.message == (
        'Service "web" is invalid: spec.clusterIPs[0]: Invalid value: ["10.96.0.200"]: may not change once set'
    )


async def test_a_service_without_ports_is_rejected(api: ApiServer) -> None:
    message = await api.rejection("services", "web", spec={"selector": {"app": "web"}})
    assert message == 'Service "web" is invalid: spec.ports: Required value'

"""The objects that each cluster has from its start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kapsa.devcluster import DevCluster, Request


async def read(cluster: DevCluster, path: str) -> Any:
    reply = await cluster.handle(Request(method="GET", path=path))
    assert reply.status == 200, path
    assert isinstance(reply.body, bytes)
    return json.loads(reply.body)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", 69),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", 50),
        ("/apis/rbac.authorization.k8s.io/v1/roles", 7),
        ("/apis/rbac.authorization.k8s.io/v1/rolebindings", 7),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", 11),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", 8),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", 2),
        ("/apis/apiregistration.k8s.io/v1/apiservices", 21),
        ("/apis/networking.k8s.io/v1/servicecidrs", 1),
        ("/apis/networking.k8s.io/v1/ipaddresses", 1),
        ("/api/v1/services", 1),
        ("/api/v1/namespaces", 4),
    ],
)
async def test_a_cluster_has_the_objects_that_kube_apiserver_creates(path: str, count: int):
    async with DevCluster(http=False, controllers=False) as cluster:
        items = (await read(cluster, path))["items"]
        assert len(items) == count
        assert len({item["metadata"]["uid"] for item in items}) == count
        assert all("@" not in json.dumps(item) for item in items)


async def test_each_node_has_a_lease():
    async with DevCluster(http=False, nodes=2) as cluster:
        leases = await read(cluster, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        assert [lease["metadata"]["name"] for lease in leases["items"]] == ["node-1", "node-2"]
        node = await read(cluster, "/api/v1/nodes/node-1")
        assert leases["items"][0]["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


async def test_the_service_kubernetes_points_to_the_listener():
    async with DevCluster(controllers=False) as cluster, aiohttp.ClientSession(cluster.url) as session:
        port = int(cluster.url.rpartition(":")[2])
        async with session.get("/api/v1/namespaces/default/endpoints/kubernetes") as reply:
            subset = (await reply.json())["subsets"][0]
        assert (subset["addresses"], subset["ports"][0]["port"]) == ([{"ip": "127.0.0.1"}], port)
        async with session.get(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
        ) as reply:
            assert (await reply.json())["endpoints"][0]["addresses"] == ["127.0.0.1"]
        async with session.get("/api/v1/namespaces/default/services/kubernetes") as reply:
            spec = (await reply.json())["spec"]
        assert (spec["clusterIP"], spec["ports"][0]["targetPort"]) == ("10.96.0.1", port)


async def test_the_address_of_the_service_kubernetes_is_taken():
    async with DevCluster(http=False, controllers=False) as cluster:
        body = {"metadata": {"name": "other"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}
        reply = await cluster.handle(
            Request(
                method="POST",
                path="/api/v1/namespaces/default/services",
                body=json.dumps(body).encode(),
                headers={"content-type": "application/json"},
            )
        )
        assert reply.status == 422
        assert b"provided IP is already allocated" in reply.body


async def test_a_cluster_with_kept_state_points_to_its_new_listener(tmp_path: Path):
    for _ in range(2):
        async with DevCluster(controllers=False, data=tmp_path) as cluster:
            endpoints = await read(cluster, "/api/v1/namespaces/default/endpoints/kubernetes")
            port = int(cluster.url.rpartition(":")[2])
            assert endpoints["subsets"][0]["ports"][0]["port"] == port
            roles = await read(cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles")
            assert len(roles["items"]) == 69

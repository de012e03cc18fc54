"""All controllers: their cost while idle, a cluster without them, logs."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.devcluster.wire.exchange import Request
from tests.devcluster.embedded.controllers.client import ObjectClient, template, workload

pytestmark = pytest.mark.virtual_time


async def read(client: ObjectClient, path: str, query: str = "") -> tuple[int, str]:
    reply = await client.cluster.server.handle(Request(method="GET", path=path, query=query))
    assert isinstance(reply.body, bytes)
    return reply.status, reply.body.decode()


async def test_an_idle_cluster_has_no_task(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(3))
    await client.settle(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stopped_cluster_leaves_no_task_and_no_timer_behind() -> None:
    async with DevCluster(clock=VirtualClock(), http=False) as cluster:
        client = ObjectClient(cluster)
        client.workloads.delay(start=100)
        await client.create("deployments", "web", workload(3))
        await client.settle(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await asyncio.sleep(200)


async def test_without_controllers_nothing_happens_by_itself() -> None:
    async with DevCluster(clock=VirtualClock(), http=False, controllers=False) as cluster:
        verbs = cluster.server.client
        deployments = verbs.resource("apps", "v1", "deployments")
        await verbs.create(
            deployments, {"metadata": {"name": "web", "namespace": "default"}, "spec": workload(3)}
        )
        await asyncio.sleep(60)
        assert verbs.list(verbs.resource("", "v1", "pods")) == []
        with pytest.raises(RuntimeError, match="controllers"):
            _ = cluster.workloads


async def test_logs_are_the_text_that_the_test_set(client: ObjectClient) -> None:
    client.workloads.logs("lone", "one\ntwo\nthree\n")
    await client.create("pods", "lone", template()["spec"])
    await client.settle(1)
    path = "/api/v1/namespaces/default/pods/lone/log"
    assert await read(client, path) == (200, "one\ntwo\nthree\n")
    assert await read(client, path, "tailLines=1") == (200, "three\n")
    assert await read(client, path, "limitBytes=5") == (200, "one\nt")
    status, text = await read(client, path, "container=other")
    assert status == 400
    assert "container other is not valid for pod lone" in text


async def test_a_pod_that_has_not_started_has_no_log(client: ObjectClient) -> None:
    client.workloads.fail_image("broken:*")
    await client.create("pods", "lone", template("broken:1")["spec"])
    await client.settle(30)
    status, text = await read(client, "/api/v1/namespaces/default/pods/lone/log")
    assert status == 400
    assert "trying and failing to pull image" in text


async def test_the_same_seed_gives_the_same_cluster() -> None:
    async def names() -> list[str]:
        async with DevCluster(clock=VirtualClock(), http=False, seed=7) as cluster:
            client = ObjectClient(cluster)
            await client.create("deployments", "web", workload(3))
            await client.settle(1)
            return client.names("pods")

    assert await names() == await names()

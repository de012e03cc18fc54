"""Live resources of a real API server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.crds.live_resources import ClusterResources
from kapsa.fleet.orchestrator.crds.live_verdict import judge_resources
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.domain.crds.resources import crd, object_of, resource, version
from tests.fleet.served_kinds import served

CLUSTER = uuid.uuid4()
COUNT = 45
NAME = "widgets.example.com"


async def test_the_resources_of_a_cluster_are_judged_by_the_crd_that_it_would_get(
    cluster: DevCluster,
) -> None:
    @asynccontextmanager
    async def connect(_: uuid.UUID) -> AsyncIterator[Client]:
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            yield client

    live = ClusterResources(connect, page_size=20)
    assert await live.definition(CLUSTER, NAME) is None
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create(crd())
        await eventually(lambda: served(client, "example.com/v1/Widget"), bool, "the kind to be served")
        for number in range(COUNT):
            await client.create(
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Widget",
                    "metadata": {"name": f"w{number}", "namespace": "default"},
                    "spec": {"size": number},
                }
            )
    present = await live.definition(CLUSTER, NAME)
    assert present is not None
    limited = crd(version("v1", resource(object_of({"size": {"type": "integer", "maximum": 41}}))))
    sizes = [len(page) async for page in live.pages(CLUSTER, present)]
    verdict = await judge_resources(limited, live.pages(CLUSTER, present))
    assert sizes == [20, 20, 5]
    assert (verdict.checked, verdict.rejected) == (COUNT, 3)


async def test_a_cluster_that_does_not_answer_is_reported_in_one_sentence() -> None:
    @asynccontextmanager
    async def refuse(_: uuid.UUID) -> AsyncIterator[Client]:
        raise TimeoutError("the cluster does not answer")
        yield

    live = ClusterResources(refuse)
    with pytest.raises(ResourcesUnreadable, match="does not answer"):
        await live.definition(CLUSTER, NAME)
    with pytest.raises(ResourcesUnreadable, match="does not answer"):
        _ = [page async for page in live.pages(CLUSTER, crd())]

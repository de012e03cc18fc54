"""Live resources of a real API server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

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
COUNT, MANY = 45, 10_000
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
            await client.create(widget(number))
    present = await live.definition(CLUSTER, NAME)
    assert present is not None
    limited = crd(version("v1", resource(object_of({"size": {"type": "integer", "maximum": 41}}))))
    sizes = [len(page) async for page in live.pages(CLUSTER, present)]
    verdict = await judge_resources(limited, live.pages(CLUSTER, present))
    assert sizes == [20, 20, 5]
    assert (verdict.checked, verdict.rejected) == (COUNT, 3)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_ten_thousand_resources_of_a_cluster_are_judged_in_pages() -> None:
    # A cluster of its own: this number of resources would slow down the tests that share one.
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:

        @asynccontextmanager
        async def connect(_: uuid.UUID) -> AsyncIterator[Client]:
            yield client

        await client.create(crd())
        await eventually(lambda: served(client, "example.com/v1/Widget"), bool, "the kind to be served")

        async def create(numbers: range) -> None:
            for number in numbers:
                await client.create(widget(number))

        await asyncio.gather(*(create(range(first, MANY, 20)) for first in range(20)))
        live = ClusterResources(connect)
        present = await live.definition(CLUSTER, NAME)
        assert present is not None
        sizes: list[int] = []

        async def pages() -> AsyncIterator[Sequence[Mapping[str, Any]]]:
            async for page in live.pages(CLUSTER, present):
                sizes.append(len(page))
                yield page

        limited = crd(version("v1", resource(object_of({"size": {"type": "integer", "maximum": MANY - 4}}))))
        verdict = await judge_resources(limited, pages())
    assert (verdict.checked, verdict.rejected) == (MANY, 3)
    assert sum(sizes) == MANY
    assert len(sizes) >= 10
    assert max(sizes) <= 1_000


def widget(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": f"w{number}", "namespace": "default"},
        "spec": {"size": number},
    }


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

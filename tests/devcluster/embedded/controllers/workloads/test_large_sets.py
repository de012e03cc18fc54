"""Workloads with more pods than a process can hold: batches, and requests that go on meanwhile."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from bench.processes import usage
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from kapsa.runtime.testing import InProcessTransport
from tests.eventually import eventually

LABELS = {"app": "huge"}
ENOUGH = 3000
KILOBYTES_OF_A_POD = 50
"""The most that the process grows for each pod, with its events and its history of changes."""
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
HUGE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "huge", "namespace": "default"},
    "spec": {"replicas": 100_000, "selector": {"matchLabels": LABELS}, "template": TEMPLATE},
}


def pods_of(cluster: DevCluster) -> int:
    return sum(each.resource == "pods" for each in cluster.objects())


@pytest.mark.long
async def test_requests_are_answered_while_a_deployment_of_100_000_replicas_grows():
    async with DevCluster(http=False) as cluster:
        client = Client(InProcessTransport(cluster))
        before = usage(os.getpid()).rss_mb
        await client.create(HUGE)
        waits: list[float] = []
        # In CPU time: other processes may keep the cores busy.
        ends, gives_up = time.process_time() + 2, time.monotonic() + 60
        while time.process_time() < ends and time.monotonic() < gives_up:
            await asyncio.sleep(0.01)
            started = time.process_time()
            await client.get("v1/Namespace", "default")
            waits.append(time.process_time() - started)
        assert 1 <= pods_of(cluster) <= 4 * 500, "the pods come in batches"
        assert len(waits) >= 5
        assert sorted(waits)[len(waits) // 2] < 0.25

        async def pods() -> int:
            return pods_of(cluster)

        await eventually(pods, lambda count: count >= ENOUGH, f"{ENOUGH} pods")
        grown = (usage(os.getpid()).rss_mb - before) * 1024 / pods_of(cluster)
        assert grown <= KILOBYTES_OF_A_POD, "the memory goes with the pods there are, not with those to come"
        await client.patch("apps/v1/Deployment", "huge", {"spec": {"replicas": 0}}, namespace="default")


async def test_a_parallel_stateful_set_grows_in_batches():
    stateful = {**HUGE, "kind": "StatefulSet", "spec": {**HUGE["spec"], "podManagementPolicy": "Parallel"}}
    async with DevCluster(http=False) as cluster:
        client = Client(InProcessTransport(cluster))
        await client.create(stateful)
        await asyncio.sleep(0.5)
        assert 1 <= pods_of(cluster) <= 1000

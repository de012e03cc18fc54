"""The examples on either engine, each in its own namespace; on virtual time if the cluster is embedded."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.runtime import SystemClock
from kapsa.runtime.testing import Harness
from tests.examples.namespaced_harness import NamespacedHarness


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module) and collector.config.getoption("--engine") == "embedded":
        collector.add_marker(pytest.mark.virtual_time)


@pytest_asyncio.fixture
async def harness(cluster: DevCluster) -> AsyncIterator[NamespacedHarness]:
    clock = VirtualClock() if cluster.engine == "embedded" else SystemClock()
    harness = Harness(cluster, clock=clock)
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    await harness.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    try:
        yield NamespacedHarness(harness, namespace)
    finally:
        for name in list(harness.running):
            await harness.stop(name)  # in order, so that the next one need not wait for the lease to run out
        await harness.close()

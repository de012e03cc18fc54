"""A cluster with the real helm in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from kapsa.devcluster import DevCluster
from tests.fleet.real_helm import RealHelm, real_helm
from tests.fleet.rollout_harness import RELEASE


@pytest_asyncio.fixture
async def helm(secure_cluster: DevCluster) -> AsyncIterator[RealHelm]:
    """The real helm on a cluster of the engine under test, which has the namespace of the rollouts."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE.namespace}}
    async with real_helm(secure_cluster) as made:
        await made.client.apply(namespace)
        yield made

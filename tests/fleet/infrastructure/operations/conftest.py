"""Cluster operations on the engine under test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from kapsa.devcluster import DevCluster
from tests.fleet.infrastructure.operations.harness import Operations, operations_on


@pytest_asyncio.fixture
async def operations(cluster: DevCluster, engine: str) -> AsyncIterator[Operations]:
    """The operations under test, on one cluster."""
    async with operations_on(cluster, engine) as made:
        yield made

"""The operator under observation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime import Client
from tests.fleet.infrastructure.health.operator_fixture import OperatorFixture
from tests.fleet.infrastructure.health.webhook_server import WebhookServer, webhook_server


@pytest_asyncio.fixture
async def operator(cluster: DevCluster, database: Database) -> AsyncIterator[OperatorFixture]:
    """The small operator, registered, on a cluster where nothing is installed yet."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        fixture = OperatorFixture(cluster, client, database)
        await fixture.register()
        yield fixture


@pytest_asyncio.fixture
async def webhooks() -> AsyncIterator[WebhookServer]:
    """The server of the operator's webhooks."""
    async with webhook_server() as server:
        yield server

"""The operator under observation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
import yaml

from kapsa.devcluster import DevCluster
from kapsa.devcluster.faults import FaultPlan
from kapsa.fleet.infrastructure.clusters.gateway import untrusted_client
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime import Client
from tests.fleet.infrastructure.health.operator_fixture import OperatorFixture
from tests.fleet.infrastructure.health.webhook_server import WebhookServer, webhook_server


@pytest_asyncio.fixture
async def operator(database: Database) -> AsyncIterator[OperatorFixture]:
    """The small operator, registered, on an embedded cluster, which has a kubelet and is new for each test."""
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
        fixture = OperatorFixture(cluster, client, database)
        await fixture.register()
        yield fixture


@pytest_asyncio.fixture
async def real_operator(real_cluster: DevCluster, database: Database) -> AsyncIterator[OperatorFixture]:
    """The small operator on the real engine, whose pods a test reports as ready."""
    async with Client.connect(kubeconfig=real_cluster.kubeconfig) as client:
        fixture = OperatorFixture(real_cluster, client, database)
        await fixture.register()
        yield fixture


@pytest_asyncio.fixture
async def webhooks() -> AsyncIterator[WebhookServer]:
    """The server of the operator's webhooks."""
    async with webhook_server() as server:
        yield server


@pytest_asyncio.fixture
async def busy_operator(database: Database) -> AsyncIterator[OperatorFixture]:
    """The operator on a cluster that a test can make busy, behind the client that the manager uses."""
    async with DevCluster(faults=FaultPlan(), tls=True) as cluster:
        kubeconfig = yaml.safe_dump(cluster.kubeconfig_data).encode()
        async with untrusted_client(kubeconfig, allow_loopback=True) as client:
            operator = OperatorFixture(cluster, client, database)
            await operator.register()
            yield operator

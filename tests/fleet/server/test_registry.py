"""The registry as a manager builds it: real audit trail, real vault, a real cluster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from sqlalchemy import text

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterEnvironment
from kapsa.fleet.domain.registry.operators import UploadedChart
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.orchestrator.ports.charts import RepositoryLogin
from kapsa.fleet.orchestrator.registry.clusters import RegisterCluster
from kapsa.fleet.orchestrator.registry.operators import RegisterOperator
from kapsa.fleet.server.services import build_services
from kapsa.fleet.settings import FleetSettings
from tests.fleet.charts import operator_chart

ADMIN = Principal("ada@example.com", frozenset({Role.ADMIN}))
PASSWORD = "hunter2-very-secret"


async def dump(database: Database) -> dict[str, str]:
    """Return the rows of each table as text."""
    async with database.transaction() as connection:
        names = await connection.execute(
            text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'fleet'")
        )
        return {
            name: "\n".join(
                (await connection.execute(text(f'SELECT t::text FROM fleet."{name}" t'))).scalars()
            )
            for name in names.scalars().all()
        }


async def test_the_registry_of_a_manager_leaves_an_audited_trace_and_no_secret(database: Database) -> None:
    settings = FleetSettings(internal_addresses=True, encryption_keys=new_key_text())
    services = await build_services(settings, database)
    registry = services.registry
    async with DevCluster(tls=True) as cluster:
        kubeconfig = Path(cluster.kubeconfig).read_text()
        registered = await registry.clusters.register(
            ADMIN, RegisterCluster("prod-eu-7", ClusterEnvironment.PRODUCTION, kubeconfig)
        )
        await registry.operators.register(
            ADMIN,
            RegisterOperator(
                "widget",
                "widgets",
                UploadedChart("widget"),
                archive=operator_chart(),
                secret_values={"password": PASSWORD},
                credentials=RepositoryLogin("reader", PASSWORD),
            ),
        )
        database.set_clock(registered.cluster.created_at + timedelta(seconds=61))
        assert await registry.monitor.run_due() == 1
        database.set_clock(None)
        health = await registry.clusters.health(ADMIN, "prod-eu-7")
        assert health.condition is ClusterCondition.HEALTHY
        async with registry.clients.client(registered.cluster.id) as client:
            assert await client.read("/version")
        stored = await dump(database)
        assert "prod-eu-7" in stored["audit_content"]
        key = yaml.safe_load(kubeconfig)["users"][0]["user"]["client-key-data"]
        for secret in (PASSWORD, PASSWORD.encode().hex(), key, key.encode().hex()):
            assert not [name for name, rows in stored.items() if secret in rows]
        await registry.clusters.delete(ADMIN, "prod-eu-7")
    stored = await dump(database)
    assert not [
        name for name, rows in stored.items() if "prod-eu-7" in rows or registered.cluster.server in rows
    ]
    assert str(registered.cluster.id) in stored["audit_entry"]
    assert stored["cluster_credential"] == ""
    await services.close()


async def test_a_manager_refuses_clusters_on_its_own_machine_by_default(database: Database) -> None:
    services = await build_services(FleetSettings(encryption_keys=new_key_text()), database)
    async with DevCluster(tls=True) as cluster:
        content = Path(cluster.kubeconfig).read_text()
        with pytest.raises(InvalidInput, match="is not allowed"):
            await services.registry.clusters.register(
                ADMIN, RegisterCluster("local", ClusterEnvironment.DEV, content)
            )
    await services.close()

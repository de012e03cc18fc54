"""Health checks: what a reading means, and replicas that share the work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterEnvironment
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.ports.clusters import (
    ClusterIdentity,
    ClusterReading,
    ClusterUnreachable,
    CredentialUnavailable,
    IssuedAccess,
    ServiceAccountRef,
)
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials
from kapsa.fleet.orchestrator.registry.cluster_monitor import ClusterMonitor, judge_reading
from kapsa.fleet.orchestrator.registry.clusters import Clusters, RegisterCluster, UpdateCluster
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.key_outage import OutageVault, watch_transactions

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = ClusterReading("v1.36.3", True, "ok", 3, 3, 1.5)


class FakeGateway:
    """Clusters that answer at once, or wait until a test lets them. A kubeconfig is the name of its cluster."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.checked: list[str] = []
        self.busy = self.most_busy = 0
        self.gate: asyncio.Event | None = None
        self.started = asyncio.Event()
        self.issued = 0
        """Tokens that were made."""

    @asynccontextmanager
    async def connect(self, kubeconfig: bytes) -> AsyncIterator[Any]:
        yield _FakeSession(self, kubeconfig.decode())


class _FakeSession:
    def __init__(self, gateway: FakeGateway, name: str) -> None:
        self._gateway = gateway
        self._name = name

    async def identify(self) -> ClusterIdentity:
        return ClusterIdentity(f"https://{self._name}.example.com", "v1.36.3", f"uid-{self._name}")

    async def bootstrap(self, account: ServiceAccountRef) -> IssuedAccess:
        self._gateway.issued += 1
        return IssuedAccess(self._name.encode(), timedelta(hours=6))

    issue = bootstrap

    async def withdraw(self, account: ServiceAccountRef) -> None:
        pass

    async def read_health(self) -> ClusterReading:
        gateway = self._gateway
        gateway.checked.append(self._name)
        gateway.busy += 1
        gateway.most_busy = max(gateway.most_busy, gateway.busy)
        if gateway.gate:
            gateway.started.set()
        try:
            await (gateway.gate.wait() if gateway.gate else asyncio.sleep(0))
        finally:
            gateway.busy -= 1
        if self._name in gateway.lost:
            raise ClusterUnreachable(f"{self._name} did not answer")
        return GOOD

    async def take_inventory(self, now: datetime) -> Any:
        raise ClusterUnreachable("no inventory")


class Manager:
    """One replica."""

    def __init__(self, database: Database, gateway: FakeGateway, vault: EnvelopeVault) -> None:
        self.audit = AuditRecorder()
        repository = PostgresClusters()
        self.credentials = credentials = ClusterCredentials(
            database, repository, gateway, vault, self.audit, rng=random.Random(0)
        )
        self.monitor = ClusterMonitor(database, repository, gateway, credentials, self.audit, parallel=5)
        adoptions: Any = None
        self.clusters = Clusters(database, repository, gateway, credentials, adoptions, self.audit)
        self.database = database

    async def register(self, *names: str) -> None:
        for name in names:
            await self.clusters.register(ADMIN, RegisterCluster(name, ClusterEnvironment.DEV, name))

    async def conditions(self) -> dict[str, ClusterCondition]:
        return {
            each.name: each.health.condition for each in (await self.clusters.page(ADMIN, limit=200)).items
        }


@pytest.mark.parametrize(
    ("reading", "condition", "reason"),
    [
        (GOOD, ClusterCondition.HEALTHY, ""),
        (ClusterReading("v1", True, "ok", 3, 2, 1), ClusterCondition.DEGRADED, "1 of 3 nodes are not ready"),
        (
            ClusterReading("v1", True, "ok", 3, 0, 1),
            ClusterCondition.UNHEALTHY,
            "none of the 3 nodes is ready",
        ),
        (ClusterReading("v1", True, "ok", 0, 0, 1), ClusterCondition.DEGRADED, "the cluster has no nodes"),
        (
            ClusterReading("v1", False, "etcd failed", 3, 3, 1),
            ClusterCondition.UNHEALTHY,
            "/readyz fails: etcd failed",
        ),
    ],
)
def test_a_reading_is_judged(reading: ClusterReading, condition: ClusterCondition, reason: str) -> None:
    health = judge_reading(reading, NOW)
    assert (health.condition, health.reason, health.last_checked) == (condition, reason, NOW)


async def test_each_cluster_is_checked_once_a_minute_and_an_unreachable_one_stays(
    database: Database, vault: LocalVault
) -> None:
    gateway = FakeGateway()
    manager = Manager(database, gateway, vault)
    database.set_clock(NOW)
    assert await manager.monitor.next_due() is None
    await manager.register("a", "b")
    gateway.checked.clear()
    gateway.lost = {"b"}
    assert await manager.monitor.run_due() == 2
    assert await manager.monitor.run_due() == 0
    assert await manager.monitor.next_due() == NOW + timedelta(seconds=60)
    assert await manager.conditions() == {"a": ClusterCondition.HEALTHY, "b": ClusterCondition.UNHEALTHY}
    health = await manager.clusters.health(ADMIN, "b")
    assert (health.reason, health.kubernetes_version) == ("b did not answer", "v1.36.3")
    database.set_clock(NOW + timedelta(seconds=59))
    assert await manager.monitor.run_due() == 0
    database.set_clock(NOW + timedelta(seconds=60))
    gateway.lost = set()
    assert await manager.monitor.run_due() == 2
    assert set((await manager.conditions()).values()) == {ClusterCondition.HEALTHY}
    assert manager.audit.actions().count("cluster.check") == 4


async def test_clusters_are_unhealthy_with_the_reason_while_the_keys_are_away_and_recover_by_themselves(
    database: Database,
) -> None:
    vault = OutageVault()
    manager = Manager(database, FakeGateway(), vault)
    database.set_clock(NOW)
    await manager.register("a")
    vault.keys.away = True
    await manager.monitor.run_due()
    health = await manager.clusters.health(ADMIN, "a")
    assert health.condition is ClusterCondition.UNHEALTHY
    assert health.reason == "its credential cannot be opened now: Vault is sealed: unseal it"
    vault.keys.away = False
    database.set_clock(NOW + timedelta(seconds=60))
    await manager.monitor.run_due()
    assert await manager.conditions() == {"a": ClusterCondition.HEALTHY}


async def test_no_transaction_of_a_registration_a_renewal_or_an_upload_waits_for_the_keys(
    database: Database,
) -> None:
    watch_transactions(database)
    vault = OutageVault()
    manager = Manager(database, FakeGateway(), vault)
    database.set_clock(NOW)
    await manager.register("a")
    database.set_clock(NOW + timedelta(hours=4))
    await manager.monitor.run_due()
    assert "cluster.issueToken" in manager.audit.actions()
    await manager.clusters.update(ADMIN, "a", UpdateCluster(kubeconfig="a"))
    assert await manager.conditions() == {"a": ClusterCondition.HEALTHY}
    assert vault.keys.calls >= 6
    assert vault.keys.in_transactions == 0


async def test_a_token_that_cannot_be_renewed_without_keys_is_used_for_the_other_half_of_its_life(
    database: Database,
) -> None:
    vault, gateway = OutageVault(), FakeGateway()
    manager = Manager(database, gateway, vault)
    database.set_clock(NOW)
    await manager.register("a")
    cluster = await manager.clusters.get(ADMIN, "a")
    gateway.issued = 0
    vault.keys.away_to_seal = True  # opened keys are kept for a while
    database.set_clock(NOW + timedelta(hours=4))
    for _ in range(3):
        assert await manager.credentials.access(cluster) == b"a"
    assert gateway.issued == 0
    vault.keys.away_to_seal = False
    assert await manager.credentials.access(cluster) == b"a"
    assert gateway.issued == 1
    assert manager.audit.actions().count("cluster.issueToken") == 1


async def test_a_cluster_without_a_token_waits_for_keys_that_cannot_seal_a_new_one(
    database: Database,
) -> None:
    vault, gateway = OutageVault(), FakeGateway()
    manager = Manager(database, gateway, vault)
    database.set_clock(NOW)
    await manager.register("a")
    cluster = await manager.clusters.get(ADMIN, "a")
    gateway.issued = 0
    vault.keys.away_to_seal = True
    database.set_clock(NOW + timedelta(hours=7))
    with pytest.raises(CredentialUnavailable, match="a new token cannot be sealed now: Vault is sealed"):
        await manager.credentials.access(cluster)
    assert gateway.issued == 0
    vault.keys.away_to_seal = False
    assert await manager.credentials.access(cluster) == b"a"


async def test_replicas_share_the_checks_within_their_bounds(
    database: Database, replica: Callable[[], Database], vault: LocalVault
) -> None:
    gateway = FakeGateway()
    managers = [Manager(each, gateway, vault) for each in (database, replica(), replica())]
    for manager in managers:
        manager.database.set_clock(NOW)
    await managers[0].register(*(f"c-{number:02}" for number in range(20)))
    gateway.checked.clear()
    gateway.most_busy = 0
    counts = await asyncio.gather(*(manager.monitor.run_due() for manager in managers))
    assert sum(counts) == 20
    assert sorted(gateway.checked) == [f"c-{number:02}" for number in range(20)]
    assert gateway.most_busy <= 15


async def test_a_late_result_does_not_replace_a_newer_one(
    database: Database, replica: Callable[[], Database], vault: LocalVault
) -> None:
    slow, fast = FakeGateway(), FakeGateway()
    sleeper, other = Manager(database, slow, vault), Manager(replica(), fast, vault)
    database.set_clock(NOW)
    other.database.set_clock(NOW + timedelta(seconds=61))
    await sleeper.register("a")
    slow.lost = {"a"}
    slow.gate = asyncio.Event()
    late = asyncio.create_task(sleeper.monitor.run_due())
    await slow.started.wait()
    assert await other.monitor.run_due() == 1
    slow.gate.set()
    await late
    assert await other.conditions() == {"a": ClusterCondition.HEALTHY}
    assert "cluster.check" not in sleeper.audit.actions()


async def test_a_cluster_that_was_deleted_during_its_check_stays_deleted(
    database: Database, vault: LocalVault
) -> None:
    gateway = FakeGateway()
    manager = Manager(database, gateway, vault)
    await manager.register("a")
    gateway.gate = asyncio.Event()
    check = asyncio.create_task(manager.monitor.run_due())
    await gateway.started.wait()
    await manager.clusters.delete(ADMIN, "a")
    gateway.gate.set()
    assert await check == 1
    assert await manager.conditions() == {}


async def test_only_one_of_two_tokens_that_were_issued_at_once_is_stored(
    database: Database, vault: LocalVault
) -> None:
    manager = Manager(database, FakeGateway(), vault)
    await manager.register("a")
    cluster = await manager.clusters.get(ADMIN, "a")
    credentials = ClusterCredentials(database, PostgresClusters(), FakeGateway(), vault, manager.audit)
    for token in (b"first", b"second"):
        sealed = await credentials.seal_token(cluster, IssuedAccess(token, timedelta(hours=6)), after=1)
        async with database.transaction() as connection:
            await credentials.put(connection, cluster, sealed)
    assert await credentials.access(cluster) == b"first"

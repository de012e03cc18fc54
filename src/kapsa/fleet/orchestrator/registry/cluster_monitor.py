"""The health of clusters: checked every minute, by any number of replicas. A late result is fenced out."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterHealth, ManagedCluster
from kapsa.fleet.orchestrator.due_work import DueWork
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.clusters import (
    CheckClaim,
    ClusterGateway,
    ClusterReading,
    ClusterRepository,
    ClusterUnreachable,
    CredentialRejected,
)
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import VaultError
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials

__all__ = ["ClusterMonitor", "judge_reading"]

_ACTOR = "system:monitor"


class ClusterMonitor:
    """Health checks of all clusters."""

    def __init__(
        self,
        transactions: Transactions,
        repository: ClusterRepository,
        gateway: ClusterGateway,
        credentials: ClusterCredentials,
        audit: AuditTrail,
        *,
        interval: timedelta = timedelta(seconds=60),
        parallel: int = 10,
    ) -> None:
        self._transactions = transactions
        self._repository = repository
        self._gateway = gateway
        self._credentials = credentials
        self._audit = audit
        self._interval = interval
        self._due = DueWork(transactions, self._claim, repository.next_check, self._check, parallel=parallel)

    async def run_due(self) -> int:
        """Check the clusters that are due, and those that become due meanwhile. Return how many were checked."""
        return await self._due.run_due()

    def stop(self) -> None:
        """Begin no further check."""
        self._due.stop()

    async def next_due(self) -> datetime | None:
        """Return the time of the next check, or None if there is no cluster."""
        return await self._due.next_due()

    async def _claim(
        self, connection: Connection, *, limit: int, at_work: Sequence[uuid.UUID]
    ) -> dict[uuid.UUID, CheckClaim]:
        claims = await self._repository.claim_checks(
            connection, interval=self._interval, limit=limit, at_work=at_work
        )
        return {each.cluster.id: each for each in claims}

    async def read(self, cluster: ManagedCluster) -> ClusterHealth:
        """Look at a cluster now. What goes wrong is its health, not an error."""
        now = await self._transactions.now()
        try:
            health = judge_reading(await self._reading(cluster), now)
        except (ClusterUnreachable, InvalidInput, VaultError) as error:
            last = cluster.health
            health = ClusterHealth(
                ClusterCondition.UNHEALTHY, str(error), last.kubernetes_version, last_checked=now
            )
        return msgspec.structs.replace(health, warnings=await self._credentials.warnings(cluster, now))

    async def _reading(self, cluster: ManagedCluster) -> ClusterReading:
        try:
            return await self._read_with(await self._credentials.access(cluster))
        except CredentialRejected as error:
            kubeconfig = await self._credentials.bootstrap_again(cluster, f"the token was rejected ({error})")
            return await self._read_with(kubeconfig)

    async def _read_with(self, kubeconfig: bytes) -> ClusterReading:
        async with self._gateway.connect(kubeconfig) as session:
            return await session.read_health()

    async def _check(self, claim: CheckClaim) -> None:
        health = await self.read(claim.cluster)
        async with self._transactions.transaction() as connection:
            if await self._repository.put_health(connection, claim.cluster.id, claim.fence, health):
                payload = {"name": claim.cluster.name, "condition": health.condition.value}
                entry = AuditEntry(
                    actor=_ACTOR,
                    action="cluster.check",
                    object_kind="cluster",
                    object_id=str(claim.cluster.id),
                    payload=payload,
                )
                await self._audit.record(connection, entry)


def judge_reading(reading: ClusterReading, now: datetime) -> ClusterHealth:
    """Return the health that a reading shows."""
    health = ClusterHealth(
        ClusterCondition.HEALTHY,
        "",
        reading.version,
        reading.nodes,
        reading.nodes_ready,
        reading.latency_ms,
        now,
    )
    if not reading.ready:
        return _worse(health, ClusterCondition.UNHEALTHY, f"/readyz fails: {reading.ready_message}")
    if reading.nodes == 0:
        return _worse(health, ClusterCondition.DEGRADED, "the cluster has no nodes")
    if reading.nodes_ready == 0:
        return _worse(health, ClusterCondition.UNHEALTHY, f"none of the {reading.nodes} nodes is ready")
    if reading.nodes_ready < reading.nodes:
        missing = reading.nodes - reading.nodes_ready
        return _worse(health, ClusterCondition.DEGRADED, f"{missing} of {reading.nodes} nodes are not ready")
    return health


def _worse(health: ClusterHealth, condition: ClusterCondition, reason: str) -> ClusterHealth:
    return msgspec.structs.replace(health, condition=condition, reason=reason)

"""The health of operators, per cluster, as the last checks of their releases saw it."""

import enum
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

import msgspec

from kapsa.fleet.domain.errors import NotAllowed, UnknownObject
from kapsa.fleet.domain.health import Evidence
from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.orchestrator.ports.clusters import ClusterRepository
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions

__all__ = [
    "HealthReadings",
    "HealthWord",
    "OperatorHealthReport",
    "OperatorHealths",
    "OperatorOnCluster",
    "ReleaseReading",
]


class HealthWord(enum.StrEnum):
    """The health of an operator."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"
    """No check has given evidence about the release that runs now."""


class PartStatus(enum.StrEnum):
    """The state of one part of an operator."""

    AVAILABLE = "Available"
    ACTIVE = "Active"
    FAILING = "Failing"
    UNKNOWN = "Unknown"


class ReleaseReading(msgspec.Struct, frozen=True):
    """The newest evidence about an operator's release on a cluster."""

    cluster: str
    version: str
    revision: int
    evidence: Evidence = Evidence.UNKNOWN
    reason: str = ""
    message: str = ""
    checked_at: datetime | None = None


class OperatorOnCluster(msgspec.Struct, frozen=True, rename="camel"):
    """The health of an operator on one cluster."""

    cluster_name: str
    health: HealthWord
    controller_pods: int | None
    """Null until a check has counted them."""
    webhook_status: PartStatus
    crd_reconciliation: PartStatus
    last_checked: datetime | None
    version: str
    revision: int
    reason: str = ""
    """A stable word if it is not healthy."""
    message: str = ""


class OperatorHealthReport(msgspec.Struct, frozen=True, rename="camel"):
    """The health of an operator on all clusters that it is installed on."""

    operator_name: str
    overall_health: HealthWord
    clusters: tuple[OperatorOnCluster, ...]


class HealthReadings(Protocol):
    """The stored evidence, in the caller's transaction."""

    async def readings(self, connection: Connection, operator_id: uuid.UUID) -> list[ReleaseReading]:
        """Return the newest evidence for each cluster that the operator is installed on, by name."""
        ...


class OperatorHealths:
    """The use cases of operators' health."""

    def __init__(
        self,
        transactions: Transactions,
        operators: OperatorRepository,
        clusters: ClusterRepository,
        readings: HealthReadings,
    ) -> None:
        self._transactions = transactions
        self._operators = operators
        self._clusters = clusters
        self._readings = readings

    async def report(self, principal: Principal, operator: str) -> OperatorHealthReport:
        """Return the health of an operator on all clusters. Raises UnknownObject if there is no such operator."""
        if not principal.roles:
            raise NotAllowed("reading the health of operators needs a role")
        async with self._transactions.transaction() as connection:
            registered = await self._operators.get(connection, operator)
            if registered is None:
                raise UnknownObject(f"there is no operator {operator[:80]!r}")
            readings = await self._readings.readings(connection, registered.id)
        entries = tuple(_entry(reading) for reading in readings)
        return OperatorHealthReport(operator, _overall(entry.health for entry in entries), entries)

    async def on_cluster(self, principal: Principal, cluster: str, operator: str) -> OperatorOnCluster:
        """Return the health of an operator on one cluster. Raises UnknownObject if it is not installed there."""
        report = await self.report(principal, operator)
        async with self._transactions.transaction() as connection:
            if await self._clusters.get(connection, cluster) is None:
                raise UnknownObject(f"there is no cluster {cluster[:80]!r}")
        for entry in report.clusters:
            if entry.cluster_name == cluster:
                return entry
        raise UnknownObject(f"operator {operator} is not installed on {cluster}")


_WORDS = {
    Evidence.HEALTHY: HealthWord.HEALTHY,
    Evidence.FAILING: HealthWord.UNHEALTHY,
    Evidence.UNKNOWN: HealthWord.UNKNOWN,
}


def _entry(reading: ReleaseReading) -> OperatorOnCluster:
    # A release passes only with positive evidence about all its parts; a failure may be of any of them.
    healthy = reading.evidence is Evidence.HEALTHY
    return OperatorOnCluster(
        cluster_name=reading.cluster,
        health=_WORDS[reading.evidence],
        controller_pods=None,
        webhook_status=PartStatus.AVAILABLE if healthy else PartStatus.UNKNOWN,
        crd_reconciliation=PartStatus.ACTIVE if healthy else PartStatus.UNKNOWN,
        last_checked=reading.checked_at,
        version=reading.version,
        revision=reading.revision,
        reason=reading.reason or ("" if healthy else "NotChecked"),
        message=reading.message or ("" if healthy else "no check has given evidence about this release"),
    )


def _overall(words: Iterable[HealthWord]) -> HealthWord:
    seen = set(words)
    for word in (HealthWord.UNHEALTHY, HealthWord.UNKNOWN, HealthWord.HEALTHY):
        if word in seen:
            return word
    return HealthWord.UNKNOWN

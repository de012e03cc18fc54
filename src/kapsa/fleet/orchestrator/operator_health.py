"""The health of operators, per cluster, as the last checks of their releases saw it."""

import enum
import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from kapsa.fleet.domain.errors import NotAllowed, UnknownObject
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.health.drift import FieldDrift
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


_STALE_AFTER = timedelta(minutes=3)
"""The age of a reading that says nothing any more: six sweeps have not renewed it."""


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
    NONE = "None"
    """The operator has no such part."""
    UNKNOWN = "Unknown"


class ReleaseReading(msgspec.Struct, frozen=True):
    """The last reading of an operator's release on a cluster."""

    cluster: str
    version: str
    revision: int
    health: OperatorHealth | None = None
    """None if no sweep has read the release yet."""
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
    checks: tuple[HealthCheck, ...] = ()
    """Each check of the last reading."""
    drift: tuple[FieldDrift, ...] = ()
    """Fields of the release that somebody else has changed since, and objects that are missing. Nothing corrects them."""
    drift_checked_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    """Things that a person should do in time, as with a certificate of a webhook that is about to expire."""


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

    async def count(self, connection: Connection, *, since: datetime) -> Counter[HealthWord]:
        """Count the operators that are installed anywhere by their health, as their reports have it.

        Readings from before `since` say nothing.
        """
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
        """Return the health of an operator on all clusters. Raises UnknownObject if it is not registered."""
        if not principal.roles:
            raise NotAllowed("reading the health of operators needs a role")
        async with self._transactions.transaction() as connection:
            registered = await self._operators.get(connection, operator)
            if registered is None:
                raise UnknownObject(f"there is no operator {operator[:80]!r}")
            readings = await self._readings.readings(connection, registered.id)
        now = await self._transactions.now()
        entries = tuple(_entry(reading, now) for reading in readings)
        return OperatorHealthReport(operator, _overall(entry.health for entry in entries), entries)

    async def count(self) -> Counter[HealthWord]:
        """Return how many of the installed operators have which health, over all their clusters."""
        since = await self._transactions.now() - _STALE_AFTER
        async with self._transactions.transaction() as connection:
            return await self._readings.count(connection, since=since)

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


def _entry(reading: ReleaseReading, now: datetime) -> OperatorOnCluster:
    health = reading.health
    doubt = _doubt(reading, now)
    evidence = health.evidence if health is not None and doubt is None else Evidence.UNKNOWN
    problem = health.first_problem if health is not None else None
    reason, message = doubt or ((problem.reason, problem.message) if problem else ("", ""))
    checks = health.checks if health is not None and doubt is None else ()
    return OperatorOnCluster(
        cluster_name=reading.cluster,
        health=_WORDS[evidence],
        controller_pods=health.controller_pods if checks and health else None,
        webhook_status=_part(checks, PartStatus.AVAILABLE, CheckKind.WEBHOOKS, CheckKind.CONVERSION),
        crd_reconciliation=_part(checks, PartStatus.ACTIVE, CheckKind.RESOURCES, CheckKind.LEASE),
        last_checked=reading.checked_at,
        version=reading.version,
        revision=reading.revision,
        reason=reason,
        message=message,
        checks=checks,
        drift=health.drift.fields if checks and health and health.drift else (),
        drift_checked_at=health.drift.checked_at if checks and health and health.drift else None,
        warnings=health.certificates.warnings if checks and health and health.certificates else (),
    )


def _doubt(reading: ReleaseReading, now: datetime) -> tuple[str, str] | None:
    """Return why a reading says nothing about the release that runs now, None if it does."""
    if reading.health is None or reading.checked_at is None:
        return "NotChecked", "no check has given evidence about this release"
    if reading.health.revision != reading.revision:
        seen = f"revision {reading.health.revision}" if reading.health.revision else "no release"
        return "OtherRevision", f"revision {reading.revision} was installed, and the last check saw {seen}"
    if now - reading.checked_at > _STALE_AFTER:
        return "Stale", f"the cluster has not answered a check since {reading.checked_at:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _part(checks: Iterable[HealthCheck], passed: PartStatus, *kinds: CheckKind) -> PartStatus:
    """Return the state of the part that some kinds of checks look at."""
    seen = {check.evidence for check in checks if check.kind in kinds}
    if Evidence.FAILING in seen:
        return PartStatus.FAILING
    if Evidence.UNKNOWN in seen:
        return PartStatus.UNKNOWN
    if seen:
        return passed
    return PartStatus.NONE if list(checks) else PartStatus.UNKNOWN


def _overall(words: Iterable[HealthWord]) -> HealthWord:
    seen = set(words)
    for word in (HealthWord.UNHEALTHY, HealthWord.UNKNOWN, HealthWord.HEALTHY):
        if word in seen:
            return word
    return HealthWord.UNKNOWN

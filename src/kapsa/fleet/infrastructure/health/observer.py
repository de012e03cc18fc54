"""The observer: reads the health of operators from their clusters, judges it, and stores each reading.

observer = OperatorObserver(clients.client, database, PostgresHealth(), audit)
await observer.record_baseline(cluster_id, operator_id, chart_digest, live)   # before an upgrade
health = await observer.observe(cluster_id, ReleaseRef("cert-manager", "operators"))
await observer.sweep(cluster_id)                                          # all operators, in the background
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

import msgspec

from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.health.certificates import CertificateReading, judge_certificates
from kapsa.fleet.domain.health.drift import DriftReading, FieldDrift
from kapsa.fleet.domain.health.judgement import judge_operator
from kapsa.fleet.domain.health.memory import HealthLimits, HealthMemory, ResourceBaseline, interrupt
from kapsa.fleet.domain.health.resources import baseline_of
from kapsa.fleet.domain.health.templates import (
    approved_additions,
    judge_template,
    template_additions,
    template_changes,
    unread_template,
)
from kapsa.fleet.domain.health.verdicts import CheckKind
from kapsa.fleet.domain.health.workloads import NO_WORKLOADS
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.clusters.answers import answering, clean_text, reason_of
from kapsa.fleet.infrastructure.health.cluster_facts import ClusterHealthReading
from kapsa.fleet.infrastructure.health.drift_reader import CompareOwners, read_drift
from kapsa.fleet.infrastructure.health.metrics import HealthMetrics
from kapsa.fleet.infrastructure.health.release_reader import ReleaseReader
from kapsa.fleet.infrastructure.health.workload_reader import WORKLOADS
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.health import HealthStore, ReleaseOrigin, StoredReading
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.runtime import ApiError, Client, ClientError, CredentialError, Unauthorized

__all__ = ["OperatorObserver"]

_ACTOR = "system:health"
_SECONDS = 25.0
"""The longest reading of one release. A sweep may take this for each."""
_DRIFT_SECONDS = 10.0
_MOST_TEMPLATE_FIELDS = 2000
"""A client that creates an object owns each field that the API server sets by default: dozens in one template."""
_PARALLEL = 4
"""Releases of a cluster that are read at a time, over the few connections of its client."""

ConnectCluster = Callable[[uuid.UUID], AbstractAsyncContextManager[Client]]


class OperatorObserver:
    """Readings of operators on clusters.

    `connect` is `ClusterClients.client`. Each reading is stored, so that the next one can compare: restarts, Leases,
    resources that stay in progress.
    """

    def __init__(
        self,
        connect: ConnectCluster,
        transactions: Transactions,
        store: HealthStore,
        audit: AuditTrail,
        *,
        limits: HealthLimits | None = None,
        metrics: HealthMetrics | None = None,
    ) -> None:
        self._connect = connect
        self._transactions = transactions
        self._store = store
        self._audit = audit
        self._limits = limits or HealthLimits()
        self._metrics = metrics
        self._releases = ReleaseReader()

    async def observe(
        self, cluster_id: uuid.UUID, release: ReleaseRef, *, left: tuple[FieldConflict, ...] = ()
    ) -> OperatorHealth:
        """Read the health of the operator that a release runs, relative to the baseline of its deployment.

        `left` has the fields that the plan leaves to other managers.

        Raises `ClusterUnreachable` if the cluster does not answer, `ClusterGone` if it is no longer registered.
        """
        async with (
            self._noting_outage(cluster_id, [release]),
            self._reading(cluster_id, "operator.observe", str(release)) as reading,
        ):
            return await self._read(reading, cluster_id, release, relative=True, left=left)

    async def record_baseline(
        self,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        chart_digest: str,
        live: ReleaseRef,
        *,
        additions: tuple[FieldConflict, ...] = (),
    ) -> None:
        """Store what an upgrade is compared with, before it.

        Resources that are not current now do not count against it, nor do fields that other managers have added to
        pod templates, if they are among the `additions` that the plan names. A live release with controllers is not
        followed by one without any. Leases that the live release holds now
        must be renewed after it: without this reading, one that no sweep has seen yet would not be missed.

        Raises `ClusterUnreachable` if the controllers of the live release cannot be read.
        """
        async with self._transactions.transaction() as connection:
            origin = await self._store.chart_origin(connection, operator_id, chart_digest)
        async with self._reading(cluster_id, "operator.baseline", str(operator_id)) as reading:
            kinds = await reading.facts.kinds(await reading.facts.definitions(origin.crds))
            health = await self._read(reading, cluster_id, live, relative=False)
            if unread := reading.unread.get(CheckKind.PODS):
                raise ClusterUnreachable(f"the controllers of {live} cannot be read: {unread}")
            present = await _templates(reading, live, template_additions)
        async with self._transactions.transaction() as connection:
            planned = [FieldDrift(each.object, each.field, each.manager) for each in additions]
            templates = approved_additions(planned, present.fields)
            baseline = msgspec.structs.replace(
                baseline_of(kinds, reading.now), templates=templates, controllers=_has_controllers(health)
            )
            await self._store.put_baseline(connection, cluster_id, operator_id, baseline)

    async def sweep(self, cluster_id: uuid.UUID) -> int:
        """Read and store the health of all operators on a cluster, and return their number."""
        async with self._transactions.transaction() as connection:
            releases = await self._store.releases(connection, cluster_id)
        if not releases:
            return 0
        slots = asyncio.Semaphore(_PARALLEL)
        unread = list(releases)

        async def read(reading: "_Reading", release: ReleaseRef) -> None:
            async with slots, asyncio.timeout(_SECONDS):
                await self._read(reading, cluster_id, release, relative=False)
            unread.remove(release)

        limit = _SECONDS * (1 + len(releases) // _PARALLEL)
        async with (
            self._noting_outage(cluster_id, unread),
            self._reading(cluster_id, "cluster.sweep", f"{len(releases)} releases", limit) as reading,
        ):
            readings = (read(reading, release) for release in releases)
            for outcome in await asyncio.gather(*readings, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome  # after all have ended: one release does not spoil the others
        return len(releases)

    async def _read(
        self,
        reading: "_Reading",
        cluster_id: uuid.UUID,
        release: ReleaseRef,
        *,
        relative: bool,
        left: tuple[FieldConflict, ...] = (),
    ) -> OperatorHealth:
        deployed = await self._releases.deployed(reading.client, cluster_id, release)
        if deployed is None:
            return OperatorHealth(0, "", ())
        async with self._transactions.transaction() as connection:
            origin = await self._store.origin(connection, cluster_id, release, deployed.deployment)
            stored = await self._store.reading(connection, cluster_id, release)
            baseline = (
                await self._store.baseline(connection, cluster_id, origin.operator_id)
                if origin and relative
                else None
            )
        memory = stored.memory if stored else HealthMemory()
        origin = origin or ReleaseOrigin(uuid.UUID(int=0))
        earlier = _certificates(stored, deployed.revision)
        due = earlier is None or earlier.checked_at <= reading.now - self._limits.drift
        facts = await reading.facts.facts(
            deployed, origin.chart_digest, origin.crds, memory, certificates=due
        )
        reading.unread |= {check.kind: check.message for check in facts.unread}
        health, memory = judge_operator(facts, memory, baseline, self._limits, reading.now)
        drift = await self._drift(reading, release, stored, health.revision, read=not relative)
        if relative:
            health = await self._of_template(reading, release, health, left, baseline)
        if facts.certificates is not None:  # a reading that failed ends no warning
            earlier = judge_certificates(facts.certificates, reading.now)
        health = _presentable(msgspec.structs.replace(health, drift=drift, certificates=earlier))
        async with self._transactions.transaction() as connection:
            kept = StoredReading(health, memory, reading.now)
            await self._store.put_reading(connection, cluster_id, release, kept)
        return health

    @asynccontextmanager
    async def _noting_outage(
        self, cluster_id: uuid.UUID, releases: Sequence[ReleaseRef]
    ) -> AsyncIterator[None]:
        """Remember that releases could not be read: the time until they can be counts against no operator."""
        started = await self._transactions.now()
        try:
            yield
        except ClusterUnreachable:
            async with self._transactions.transaction() as connection:
                for release in releases:
                    stored = await self._store.reading(connection, cluster_id, release)
                    if stored is not None and stored.checked_at < started:
                        kept = msgspec.structs.replace(stored, memory=interrupt(stored.memory, started))
                        await self._store.put_reading(connection, cluster_id, release, kept)
            raise

    async def _drift(
        self,
        reading: "_Reading",
        release: ReleaseRef,
        stored: StoredReading | None,
        revision: int,
        *,
        read: bool,
    ) -> DriftReading | None:
        """Return the drift of a revision: the last reading of it, or a new one if that is old."""
        earlier = stored.health.drift if stored and stored.health.revision == revision else None
        fresh = earlier is not None and reading.now - earlier.checked_at < self._limits.drift
        if fresh or not read:
            return earlier
        try:
            async with asyncio.timeout(_DRIFT_SECONDS):
                return await read_drift(reading.client, release, reading.now)
        except (ApiError, TimeoutError):
            return earlier  # the health of the operator does not depend on it

    async def _of_template(
        self,
        reading: "_Reading",
        release: ReleaseRef,
        health: OperatorHealth,
        left: tuple[FieldConflict, ...],
        baseline: ResourceBaseline | None,
    ) -> OperatorHealth:
        """Return health for a gate: pods prove nothing about a version if somebody changed their template."""
        try:
            async with asyncio.timeout(_DRIFT_SECONDS):
                drift = await _templates(reading, release, template_changes)
            before = frozenset(baseline.templates if baseline else ())
            check = judge_template(drift, [(each.object, each.field) for each in left], before)
        except (Unauthorized, CredentialError):
            raise
        except (ClientError, TimeoutError) as error:
            # What was read before is still evidence: a controller that crashes fails without its template.
            check = unread_template(reason_of(error))
        return health if check is None else msgspec.structs.replace(health, checks=(*health.checks, check))

    @asynccontextmanager
    async def _reading(
        self, cluster_id: uuid.UUID, action: str, what: str, seconds: float = _SECONDS
    ) -> AsyncIterator["_Reading"]:
        """Open a session with a cluster, which leaves an audit entry."""
        now = await self._transactions.now()
        await self._record(cluster_id, action, what)
        try:
            async with answering("the cluster", seconds), self._connect(cluster_id) as client:
                reading = _Reading(client, now, self._metrics)
                try:
                    yield reading
                finally:
                    await reading.facts.close()
        except UnknownObject as error:
            raise ClusterGone(str(error)) from None

    async def _record(self, cluster_id: uuid.UUID, action: str, what: str) -> None:
        entry = AuditEntry(
            actor=_ACTOR,
            action=action,
            object_kind="cluster",
            object_id=str(cluster_id),
            payload={"what": what},
        )
        async with self._transactions.transaction() as connection:
            await self._audit.record(connection, entry)


class _Reading:
    """An open session, and the facts that it has read so far."""

    def __init__(self, client: Client, now: datetime, metrics: HealthMetrics | None) -> None:
        self.client = client
        self.now = now
        self.facts = ClusterHealthReading(client, now, metrics)
        self.unread: dict[CheckKind, str] = {}
        """The parts that could not be read, of whatever release, with the reason."""


async def _templates(reading: _Reading, release: ReleaseRef, compare: CompareOwners) -> DriftReading:
    """Return what is not as in the manifest of a release in the pod templates of its controllers."""
    return await read_drift(
        reading.client, release, reading.now, kinds=WORKLOADS, compare=compare, most=_MOST_TEMPLATE_FIELDS
    )


def _has_controllers(health: OperatorHealth) -> bool:
    """Return whether a release has controllers, whatever their state."""
    return any(check.kind is CheckKind.PODS and check.reason != NO_WORKLOADS for check in health.checks)


def _presentable(health: OperatorHealth) -> OperatorHealth:
    """Return health without secrets and control characters: messages have words of the cluster and its tenants."""
    checks = tuple(
        msgspec.structs.replace(check, message=clean_text(check.message)) for check in health.checks
    )
    certificates = health.certificates
    if certificates is not None:
        warnings = tuple(map(clean_text, certificates.warnings))
        certificates = msgspec.structs.replace(certificates, warnings=warnings)
    return msgspec.structs.replace(health, checks=checks, certificates=certificates)


def _certificates(stored: StoredReading | None, revision: int) -> CertificateReading | None:
    """Return the last reading of a revision's certificates."""
    return stored.health.certificates if stored and stored.health.revision == revision else None

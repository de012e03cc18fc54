"""A double of Helm with Helm's own states, and of the clusters that it writes to.

It keeps what the real Helm keeps: an upgrade refuses a pending release, a rollback does not look, a process that is
killed leaves a pending record, a failed run leaves a failed one. `tests/fleet/helm_contract.py` holds it to that.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRecord, ReleaseRef, latest_record
from kapsa.fleet.orchestrator.ports.cluster_operations import (
    ClusterGone,
    ClusterNotReady,
    CrdRequest,
    ReleaseActivity,
)
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmRefused, UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard

Interrupt = Callable[[str], AbstractAsyncContextManager["Interruption"]]


class Interruption:
    """A call under way, in which a test may end the process."""

    async def cut_off(self) -> None:
        """End the process here, in the middle of Helm, if the test wants it."""


@asynccontextmanager
async def undisturbed(call: str) -> Any:
    """Let a call run to its end."""
    yield Interruption()


class TooBusy(Interruption):
    """An API server that is too busy for the writes of Helm, from the first after the new record."""

    async def cut_off(self) -> None:
        raise ClusterUnreachable("the API server answered 429: too many requests")


@asynccontextmanager
async def too_busy(call: str) -> Any:
    """Let no run of Helm get beyond its own record."""
    yield TooBusy()


class FakeCluster:
    """A cluster: releases with their history, controllers, Leases, webhooks and CRDs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offline = False
        self.gone = False
        self.records: dict[ReleaseRef, list[ReleaseRecord]] = {}
        self.charts: dict[tuple[ReleaseRef, int], str] = {}
        self.replicas: dict[ReleaseRef, int] = {}
        self.lease = ""
        self.webhooks: ReleaseRef | None = None
        self.crds: list[uuid.UUID] = []
        """The deployments whose CRDs are applied."""
        self.crd_bases: list[str | None] = []
        """The charts that a rollback of those CRDs would return to."""
        self.crd_returns: dict[uuid.UUID, str] = {}
        """Sentences on CRDs about resources that a rollback could not convert back, by deployment."""
        self.manifests: list[bytes] = []
        self.completed: list[str] = []
        """Helm's writes that ran to their end."""
        self.two_controllers = False
        self.left: tuple[FieldConflict, ...] = ()
        """The fields that the last rollback left to their owners."""
        self.accepted: tuple[FieldConflict, ...] = ()
        """The fields that the gates of a version accept with other owners."""
        self.additions: tuple[FieldConflict, ...] = ()
        """The additions to pod templates that the plan names, for the last baseline."""

    def history(self, release: ReleaseRef) -> list[ReleaseRecord]:
        return self.records.setdefault(release, [])

    def install_by_hand(self, release: ReleaseRef, chart: str, *, version: str = "1.0.0") -> None:
        """Install as a person does, without labels of the fleet."""
        revision = len(self.history(release)) + 1
        self._supersede(release)
        self.history(release).append(
            self._record(revision, HelmStatus.DEPLOYED, {}, "Install complete", version)
        )
        self.charts[release, revision] = chart
        self.scale(release, 1)
        self.webhooks = release

    def _record(
        self, revision: int, status: HelmStatus, labels: dict[str, str], description: str, version: str = ""
    ) -> ReleaseRecord:
        number = next(_numbers)
        return ReleaseRecord(revision, status, labels, description, version, f"uid-{number}", str(number))

    def put(self, release: ReleaseRef, revision: int, status: HelmStatus, **fields: Any) -> ReleaseRecord:
        """Write a record, new or in place of the one with its revision."""
        records = self.history(release)
        old = next((record for record in records if record.revision == revision), None)
        if old is None:
            made = self._record(revision, status, fields.get("labels", {}), fields.get("description", ""))
            made = msgspec.structs.replace(made, version=fields.get("version", ""))
            records.append(made)
            return made
        changed = msgspec.structs.replace(old, status=status, resource_version=str(next(_numbers)))
        changed = msgspec.structs.replace(changed, description=fields.get("description", old.description))
        records[records.index(old)] = changed
        return changed

    def _supersede(self, release: ReleaseRef) -> None:
        for record in list(self.history(release)):
            if record.status is HelmStatus.DEPLOYED:
                self.put(release, record.revision, HelmStatus.SUPERSEDED)

    def scale(self, release: ReleaseRef, replicas: int) -> None:
        self.replicas[release] = replicas
        running = [each for each, count in self.replicas.items() if count]
        self.two_controllers = self.two_controllers or len(running) > 1
        self.lease = str(running[0]) if running else ""

    def chart_of(self, release: ReleaseRef) -> tuple[int, str]:
        deployed = [record for record in self.history(release) if record.status is HelmStatus.DEPLOYED]
        latest = latest_record(deployed)
        return (latest.revision, self.charts[release, latest.revision]) if latest else (0, "")


_numbers = itertools.count(1)


class FakeClusters:
    """All clusters of a test, and the ports on them."""

    def __init__(self, *names: str, identify: Callable[[str], uuid.UUID]) -> None:
        self.clusters = {identify(name): FakeCluster(name) for name in names}
        self.helm_fails: set[tuple[str, str]] = set()
        """Clusters and charts that Helm cannot apply there."""
        self.rollback_fails = False
        self.left_behind: dict[str, str] = {}
        """Clusters whose resources no rollback can convert back, and the sentence about them."""
        self.unhealthy: set[tuple[str, str]] = set()
        """Clusters and charts: those controllers fail their checks."""
        self.drifted: set[tuple[str, str]] = set()
        """Clusters and charts: somebody has changed the pod templates of those controllers."""
        self.findings: dict[tuple[str, str], HealthCheck] = {}
        """One more check of a chart on a cluster, with whatever it has seen."""
        self.conflicting: dict[str, tuple[FieldConflict, ...]] = {}
        """Clusters on which other managers own fields of every manifest."""
        self.conflict_while_applying = ""
        """The failure of Helm over a field that somebody takes while it runs; empty if nobody does."""
        self.conclusive = False
        self.slow_to_stop: dict[ReleaseRef, int] = {}
        """The number of looks in which a stopped controller is still seen."""
        self.interrupt: Interrupt = undisturbed
        self.on_call: Callable[[str], Awaitable[None]] | None = None
        self.calls: list[str] = []
        self._looks: dict[ReleaseRef, int] = {}

    def __getitem__(self, name: str) -> FakeCluster:
        return next(cluster for cluster in self.clusters.values() if cluster.name == name)

    async def _reach(self, cluster_id: uuid.UUID, call: str) -> FakeCluster:
        cluster = self.clusters[cluster_id]
        self.calls.append(f"{cluster.name} {call}")
        if self.on_call is not None:
            await self.on_call(self.calls[-1])
        if cluster.gone:
            raise ClusterGone(f"{cluster.name} is not registered")
        if cluster.offline:
            raise ClusterUnreachable(f"{cluster.name}: no route to host")
        return cluster

    # HelmReleases

    async def history(self, cluster_id: uuid.UUID, release: ReleaseRef) -> tuple[ReleaseRecord, ...]:
        async with self.interrupt("history"):
            cluster = await self._reach(cluster_id, "history")
            return tuple(cluster.history(release))

    async def upgrade(self, request: UpgradeRequest, guard: LeaseGuard) -> int:
        async with self.interrupt("upgrade") as interruption:
            cluster = await self._reach(request.cluster_id, "upgrade")
            guard.check()
            latest = latest_record(cluster.history(request.release))
            if latest is not None and latest.status.pending:
                raise HelmRefused("another operation (install/upgrade/rollback) is in progress")
            revision = latest.revision + 1 if latest else 1
            pending = HelmStatus.PENDING_UPGRADE if latest else HelmStatus.PENDING_INSTALL
            cluster.put(
                request.release,
                revision,
                pending,
                labels=request.labels,
                description="Preparing upgrade" if latest else "Initial install underway",
                version=request.chart_digest,
            )
            await interruption.cut_off()
            guard.check()
            cause = self.conflict_while_applying
            if (cluster.name, request.chart_digest) in self.helm_fails:
                cause = "admission denied"
            if cause:
                message = f'Upgrade "{request.release.name}" failed: {cause}'
                cluster.put(request.release, revision, HelmStatus.FAILED, description=message)
                cluster.completed.append(f"upgrade {request.release} {revision} failed")
                raise HelmFailed(message)
            cluster._supersede(request.release)
            cluster.put(request.release, revision, HelmStatus.DEPLOYED, description="Upgrade complete")
            cluster.charts[request.release, revision] = request.chart_digest
            cluster.manifests.append(request.manifest)
            cluster.scale(request.release, 0 if request.idle else 1)
            if not request.idle:
                cluster.webhooks = request.release
            cluster.completed.append(f"upgrade {request.release} {revision}")
            return revision

    async def rollback(
        self,
        cluster_id: uuid.UUID,
        release: ReleaseRef,
        revision: int,
        guard: LeaseGuard,
        *,
        left: tuple[FieldConflict, ...] = (),
    ) -> int:
        async with self.interrupt("rollback") as interruption:
            cluster = await self._reach(cluster_id, "rollback")
            cluster.left = left
            guard.check()
            latest = latest_record(cluster.history(release))
            target = next((each for each in cluster.history(release) if each.revision == revision), None)
            if latest is None or target is None:
                raise HelmFailed("release: not found")
            made = latest.revision + 1
            description = f"Rollback to {revision}"
            cluster.put(
                release, made, HelmStatus.PENDING_ROLLBACK, labels=target.labels, description=description
            )
            # Helm stores the chart with the record, whatever becomes of it.
            cluster.charts[release, made] = cluster.charts[release, revision]
            await interruption.cut_off()
            guard.check()
            if self.rollback_fails:
                message = f'Rollback "{release.name}" failed: timed out'
                cluster.put(release, latest.revision, HelmStatus.SUPERSEDED)
                cluster.put(release, made, HelmStatus.FAILED, description=message)
                cluster.completed.append(f"rollback {release} {made} failed")
                raise HelmFailed(message)
            # Only deployed records: a pending or failed one keeps its status.
            cluster._supersede(release)
            cluster.put(release, made, HelmStatus.DEPLOYED)
            cluster.scale(release, 1)
            cluster.webhooks = release
            cluster.completed.append(f"rollback {release} {made}")
            return made

    async def uninstall(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        async with self.interrupt("uninstall") as interruption:
            cluster = await self._reach(cluster_id, "uninstall")
            guard.check()
            latest = latest_record(cluster.history(release))
            if latest is None:
                raise HelmFailed(f"uninstall: Release not loaded: {release.name}: release: not found")
            cluster.put(release, latest.revision, HelmStatus.UNINSTALLING)
            await interruption.cut_off()
            guard.check()
            cluster.records[release] = []
            cluster.scale(release, 0)
            if cluster.webhooks == release:
                cluster.webhooks = None
            cluster.completed.append(f"uninstall {release}")

    async def remove_pending(
        self, cluster_id: uuid.UUID, release: ReleaseRef, record: ReleaseRecord, guard: LeaseGuard
    ) -> None:
        async with self.interrupt("remove_pending"):
            cluster = await self._reach(cluster_id, "remove_pending")
            guard.check()
            if record not in cluster.history(release):
                raise HelmRefused(f"revision {record.revision} has changed")
            cluster.history(release).remove(record)

    # ConflictTrials

    async def conflicts(
        self, cluster: ManagedCluster, release: ReleaseRef, manifest: bytes
    ) -> tuple[FieldConflict, ...]:
        async with self.interrupt("conflicts"):
            return self.conflicting.get((await self._reach(cluster.id, "conflicts")).name, ())

    # ClusterOperations

    async def apply_crds(self, request: CrdRequest, guard: LeaseGuard) -> None:
        async with self.interrupt("apply_crds"):
            cluster = await self._reach(request.cluster_id, "apply_crds")
            guard.check()
            if request.deployment_id not in cluster.crds:
                cluster.crds.append(request.deployment_id)
                cluster.crd_bases.append(request.base_chart)

    async def revert_crds(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        async with self.interrupt("revert_crds"):
            cluster = await self._reach(cluster_id, "revert_crds")
            guard.check()
            if deployment_id in cluster.crds:
                cluster.crds.remove(deployment_id)
                cluster.crd_returns[deployment_id] = self.left_behind.get(cluster.name, "")
            return tuple(filter(None, [cluster.crd_returns.get(deployment_id)]))

    async def return_storage(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        async with self.interrupt("return_storage"):
            cluster = await self._reach(cluster_id, "return_storage")
            guard.check()
            return tuple(filter(None, [self.left_behind.get(cluster.name)]))

    async def record_baseline(
        self,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        chart_digest: str,
        live: ReleaseRef,
        *,
        additions: tuple[FieldConflict, ...] = (),
    ) -> None:
        async with self.interrupt("record_baseline"):
            cluster = await self._reach(cluster_id, "record_baseline")
            cluster.additions = additions

    async def observe(
        self, cluster_id: uuid.UUID, release: ReleaseRef, *, left: tuple[FieldConflict, ...] = ()
    ) -> OperatorHealth:
        async with self.interrupt("observe"):
            cluster = await self._reach(cluster_id, "observe")
            cluster.accepted = left or cluster.accepted
            revision, chart = cluster.chart_of(release)
            running = cluster.replicas.get(release, 0)
            if not running:
                check = HealthCheck(CheckKind.PODS, Evidence.UNKNOWN, "NoPods", "no controller runs")
            elif (cluster.name, chart) in self.unhealthy:
                reason = "CrashLoopBackOff" if self.conclusive else "NotReady"
                check = HealthCheck(
                    CheckKind.PODS, Evidence.FAILING, reason, "the controller fails", self.conclusive
                )
            else:
                check = HealthCheck(CheckKind.PODS, Evidence.HEALTHY, "Passed", "1 of 1 ready")
            checks = [check]
            if (cluster.name, chart) in self.drifted:
                message = "image was changed by kubectl-edit"
                checks.append(HealthCheck(CheckKind.TEMPLATE, Evidence.UNKNOWN, "Drift", message))
            if running and (finding := self.findings.get((cluster.name, chart))) is not None:
                checks.append(finding)
            return OperatorHealth(revision, chart, tuple(checks), running)

    async def validate_idle(self, cluster_id: uuid.UUID, release: ReleaseRef) -> OperatorHealth:
        async with self.interrupt("validate_idle"):
            cluster = await self._reach(cluster_id, "validate_idle")
            revision, chart = cluster.chart_of(release)
            check = HealthCheck(CheckKind.PODS, Evidence.HEALTHY, "Passed", "the dry run passed")
            return OperatorHealth(revision, chart, (check,))

    async def scale_down(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        async with self.interrupt("scale_down"):
            cluster = await self._reach(cluster_id, "scale_down")
            guard.check()
            cluster.scale(release, 0)

    async def activity(self, cluster_id: uuid.UUID, release: ReleaseRef) -> ReleaseActivity:
        async with self.interrupt("activity"):
            cluster = await self._reach(cluster_id, "activity")
            looks = self._looks[release] = self._looks.get(release, 0) + 1
            if looks <= self.slow_to_stop.get(release, 0):
                return ReleaseActivity(1, str(release))
            holder = cluster.lease if cluster.lease == str(release) else ""
            return ReleaseActivity(cluster.replicas.get(release, 0), holder)

    async def scale_up(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        async with self.interrupt("scale_up"):
            cluster = await self._reach(cluster_id, "scale_up")
            guard.check()
            cluster.scale(release, 1)

    async def switch_webhooks(
        self, cluster_id: uuid.UUID, release: ReleaseRef, other: ReleaseRef, guard: LeaseGuard
    ) -> None:
        async with self.interrupt("switch_webhooks"):
            cluster = await self._reach(cluster_id, "switch_webhooks")
            guard.check()
            if not cluster.replicas.get(release):
                raise ClusterNotReady("no pod serves the webhook")
            cluster.webhooks = release

"""Rollouts whose Helm is the real one on a cluster, and whose other operations are doubles."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from kapsa.adapters.testing.chart_server import pack_chart
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import HelmStatus, ReleaseRecord, ReleaseRef
from kapsa.fleet.infrastructure.helm.gated_helm import GatedHelm
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.helm import UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.plan_sources import ChartRenderRequest
from kapsa.runtime import TransportError
from tests.fleet.crash_points import Crash, CrashMoment
from tests.fleet.examples import cluster_id
from tests.fleet.helm_double import FakeCluster, FakeClusters
from tests.fleet.real_helm import ApiWrite, RealHelm, config_map, hook, kill_helm, manifest_of
from tests.fleet.rollout_harness import RELEASE, VERSIONS, FakePlanSources, RolloutHarness

__all__ = ["NAME", "KillPoint", "RevisionPoint", "RolloutOnCluster"]

NAME = "dev-1"


def objects_of(version: str) -> list[dict[str, Any]]:
    """Return the objects of a version: one that changes, one that only this version has, and a hook."""
    namespace = RELEASE.namespace
    return [
        config_map("app", namespace, version=version),
        config_map(f"only-in-{version[0]}", namespace, version=version),
        hook("before", namespace, "pre-upgrade,pre-rollback", version=version),
    ]


class KillPoint:
    """The n-th write of a run to the API server, and whether the process ends before or after it."""

    def __init__(self, number: int, moment: CrashMoment, write: str) -> None:
        self.number = number
        self.moment = moment
        self.write = write

    def hit_by(self, write: ApiWrite) -> bool:
        return write.number == self.number and write.answered is (self.moment is CrashMoment.EFFECT)

    def __str__(self) -> str:
        return f"SIGKILL {self.moment} of write {self.number}, {self.write}"


class RevisionPoint(KillPoint):
    """The n-th new revision in the history, which is stored as pending when the process ends."""

    def __init__(self, number: int) -> None:
        super().__init__(number, CrashMoment.EFFECT, "a new revision")
        self._left = number

    def hit_by(self, write: ApiWrite) -> bool:
        if write.to_history and write.method == "POST" and write.answered:
            self._left -= 1
            return self._left == 0
        return False


class ClustersWithHelm(FakeClusters):
    """The doubles of clusters, with the histories and the writes of the real Helm."""

    def __init__(self, helm: RealHelm) -> None:
        super().__init__(NAME, identify=cluster_id)
        self.real = helm
        self.dead = False
        """True once the manager was killed: nothing that it awaits answers any more."""

    async def _reach(self, cluster_id: uuid.UUID, call: str) -> FakeCluster:
        cluster = await super()._reach(cluster_id, call)
        records = await self.history(cluster_id, RELEASE)
        cluster.records = {RELEASE: list(records)} if records else {}
        cluster.charts = {(RELEASE, each.revision): VERSIONS.get(each.version, "") for each in records}
        cluster.replicas = {RELEASE: 1} if records else {}
        return cluster

    async def history(self, cluster_id: uuid.UUID, release: ReleaseRef) -> tuple[ReleaseRecord, ...]:
        return await self._alive(self.real.helm.history(cluster_id, release))

    async def upgrade(self, request: UpgradeRequest, guard: LeaseGuard) -> int:
        return await self._alive(self.real.helm.upgrade(request, guard))

    async def rollback(
        self,
        cluster_id: uuid.UUID,
        release: ReleaseRef,
        revision: int,
        guard: LeaseGuard,
        *,
        left: tuple[FieldConflict, ...] = (),
    ) -> int:
        return await self._alive(self.real.helm.rollback(cluster_id, release, revision, guard, left=left))

    async def uninstall(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        await self._alive(self.real.helm.uninstall(cluster_id, release, guard))

    async def remove_pending(
        self, cluster_id: uuid.UUID, release: ReleaseRef, record: ReleaseRecord, guard: LeaseGuard
    ) -> None:
        await self._alive(self.real.helm.remove_pending(cluster_id, release, record, guard))

    async def _alive(self, act: Awaitable[Any]) -> Any:
        try:
            return await act
        except Exception:
            if self.dead:
                raise Crash from None
            raise


class ManifestsByVersion(FakePlanSources):
    """Plan sources whose manifests can be applied."""

    async def render(self, request: ChartRenderRequest) -> bytes:
        version = next(each for each, digest in VERSIONS.items() if digest == request.chart_digest)
        return manifest_of(*objects_of(version))


class RolloutOnCluster:
    """A fleet of one cluster with the real Helm, which can be killed at a write."""

    def __init__(self, database: Database, helm: RealHelm) -> None:
        self.helm = helm
        helm.cluster_id = cluster_id(NAME)
        for version, digest in VERSIONS.items():
            helm.archives[digest] = pack_chart("demo", version, {"templates/x.yaml": "# nothing\n"})
        self.clusters = ClustersWithHelm(helm)
        self.fleet = RolloutHarness(database, sources=ManifestsByVersion(self.clusters))
        self.engine = self.fleet.replica("manager-1", slots=1)

    async def prepare(self, *, installed: bool, unhealthy: str = "") -> None:
        """Empty the namespace, register everything, and install version 1.0.0 as a person does."""
        await self.clear()
        await self.fleet.register(installed=False)
        self.clusters.unhealthy = {(NAME, unhealthy)} if unhealthy else set()
        if installed:
            await self.install_by_hand()

    async def install_by_hand(self, version: str = "1.0.0") -> None:
        request = self.helm.request(
            *objects_of(version),
            cluster_id=cluster_id(NAME),
            release=RELEASE,
            chart_digest=VERSIONS[version],
            labels={"team": "platform"},
            description="by hand",
        )
        await self.helm.helm.upgrade(request, LeaseGuard(60.0, lambda: 0.0))

    async def leave_pending_by_hand(self, status: HelmStatus) -> None:
        """Kill the Helm of a person in the middle of an install, an upgrade or a rollback."""
        key, held = cluster_id(NAME), LeaseGuard(60.0, lambda: 0.0)
        if status is HelmStatus.PENDING_ROLLBACK:
            await self.install_by_hand("2.0.0")
            await self.helm.killed(lambda: self.helm.helm.rollback(key, RELEASE, 1, held))
        else:
            await self.helm.killed(lambda: self.install_by_hand("2.0.0"))

    async def clear(self) -> None:
        """Remove what releases have left in the namespace."""
        for kind in ("v1/Secret", "v1/ConfigMap"):
            await self.helm.client.delete_collection(kind, namespace=RELEASE.namespace)

    async def run(
        self,
        made: VersionDeployment,
        point: KillPoint | None = None,
        look: Callable[[], Awaitable[Any]] | None = None,
    ) -> list[str]:
        """Run to the end, and return the writes. At a point the manager and its Helm are killed; another takes over.

        `look` is called between the two.
        """
        writes: list[str] = []

        async def tamper(write: ApiWrite) -> None:
            if not write.answered:
                writes.append(f"{write.method} {write.path.partition('?')[0].rpartition('/')[2]}")
            if point is not None and point.hit_by(write):
                self.kill()

        self.helm.transport.count = 0
        self.helm.transport.tamper = tamper
        try:
            await self.fleet.run(self.engine)
        except* Crash:
            self.helm.transport.tamper = None
            self.clusters.dead = False
            await self.helm.helm.close()
            self.helm.helm = GatedHelm(self.helm, self.helm, self.helm.connect, self.helm.audit)  # type: ignore[arg-type]
            if look is not None:
                await look()
            await self.fleet.run(self.fleet.replica("manager-2", slots=1))
        assert point is None or self.helm.transport.tamper is None, f"{point} was not reached"
        self.helm.transport.tamper = None
        return writes

    def kill(self) -> None:
        """Kill Helm, and let nothing of the manager continue."""
        assert kill_helm() == 1
        self.clusters.dead = True
        raise TransportError("the manager is dead", sent=True)

    async def outcome(self, made: VersionDeployment) -> dict[str, Any]:
        """Return everything that must not depend on a kill."""
        deployment = await self.fleet.deployment(made.id)
        target = (await self.fleet.targets(made.id))[NAME]
        history = await self.helm.helm.history(cluster_id(NAME), RELEASE)
        live = await self.helm.client.list("v1/ConfigMap", namespace=RELEASE.namespace)
        summary = await self.fleet.summary(made.id)
        return {
            "phase": deployment.phase,
            "message": deployment.message,
            "cluster": (target.step, target.revision, target.base_revision, target.reason, target.message),
            "history": [(each.revision, each.status.value, each.version) for each in history],
            "objects": {each["metadata"]["name"]: each.get("data") for each in live.items},
            "events": summary["events"],
        }

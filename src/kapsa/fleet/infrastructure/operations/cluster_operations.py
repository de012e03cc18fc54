"""The operations of the rollout engine on managed clusters, composed of CRDs, the hand-over, and a health observer."""

import uuid
from typing import Protocol

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL, ReleaseRef
from kapsa.fleet.infrastructure.operations.crds.crd_changes import CrdChanges
from kapsa.fleet.infrastructure.operations.crds.storage_migration import StorageMigration
from kapsa.fleet.infrastructure.operations.handover.controllers import (
    LeaseWatch,
    release_activity,
    scale_down,
    scale_up,
)
from kapsa.fleet.infrastructure.operations.handover.idle_validation import validate_idle
from kapsa.fleet.infrastructure.operations.handover.webhook_switch import switch_webhooks
from kapsa.fleet.infrastructure.operations.leased_clients import LeasedClients
from kapsa.fleet.infrastructure.operations.release_objects import ReleaseObjects, read_objects
from kapsa.fleet.infrastructure.telemetry.spans import child_span
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused, CrdRequest, ReleaseActivity
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.rollouts import RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Transactions

__all__ = ["HealthObserver", "ManagedClusterOperations"]


class HealthObserver(Protocol):
    """A reader of the health of operators."""

    async def observe(
        self, cluster_id: uuid.UUID, release: ReleaseRef, *, left: tuple[FieldConflict, ...] = ()
    ) -> OperatorHealth:
        """Sweep a cluster now, and return the health of the operator that a release runs."""
        ...

    async def record_baseline(
        self,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        chart_digest: str,
        live: ReleaseRef,
        *,
        additions: tuple[FieldConflict, ...] = (),
    ) -> None:
        """Store what an upgrade is compared with, before it: resources that are not current, and the Leases in use."""
        ...


class ManagedClusterOperations:
    """The port `ClusterOperations` on real clusters.

    ::

        access = LeasedClients(clients.client, database, audit)
        operations = ManagedClusterOperations(access, database, PostgresOperators(), PostgresRollouts(), observer)

    Every write checks the lease right before it, and every session of writes leaves an audit entry.
    """

    def __init__(
        self,
        access: LeasedClients,
        transactions: Transactions,
        operators: OperatorRepository,
        rollouts: RolloutStore,
        observer: HealthObserver,
        *,
        migration: StorageMigration | None = None,
        leases: LeaseWatch | None = None,
    ) -> None:
        self._access = access
        self._transactions = transactions
        self._rollouts = rollouts
        self._observer = observer
        self._crds = CrdChanges(access, transactions, operators, migration or StorageMigration())
        self._leases = leases or LeaseWatch()

    async def apply_crds(self, request: CrdRequest, guard: LeaseGuard) -> None:
        """Apply the CRDs of a chart by server-side apply, a superset of what is there, after a dry run of all."""
        with child_span("crd.apply"):
            await self._crds.apply(request, guard)

    async def revert_crds(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Restore the conversion and the storage flag of a deployment's CRDs. Nothing is removed."""
        with child_span("crd.revert"):
            return await self._crds.revert(cluster_id, deployment_id, guard)

    async def return_storage(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Store resources in the version before a deployment, while its controller still converts them."""
        return await self._crds.return_storage(cluster_id, deployment_id, guard)

    async def observe(
        self, cluster_id: uuid.UUID, release: ReleaseRef, *, left: tuple[FieldConflict, ...] = ()
    ) -> OperatorHealth:
        """Sweep the cluster now, and return the health of the operator that a release runs."""
        return await self._observer.observe(cluster_id, release, left=left)

    async def record_baseline(
        self,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        chart_digest: str,
        live: ReleaseRef,
        *,
        additions: tuple[FieldConflict, ...] = (),
    ) -> None:
        """Store what an upgrade is compared with, before it: resources that are not current, and the Leases in use."""
        await self._observer.record_baseline(cluster_id, operator_id, chart_digest, live, additions=additions)

    async def validate_idle(self, cluster_id: uuid.UUID, release: ReleaseRef) -> OperatorHealth:
        """Return evidence about a release at zero replicas: dry runs, images, rights."""
        async with self._access.read(cluster_id) as client:
            installed = await read_objects(client, release)
            if installed is None:
                missing = f"release {release} is not installed"
                check = HealthCheck(CheckKind.PODS, Evidence.UNKNOWN, "NoRelease", missing)
                return OperatorHealth(0, "", (check,))
            checks = await validate_idle(client, installed)
        return OperatorHealth(installed.record.revision, await self._chart(installed), checks)

    async def scale_down(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Scale the controllers of a release to zero, and remember how many there were."""
        details = {"release": str(release)}
        async with self._access.write(cluster_id, guard, "cluster.scale_down", details) as client:
            installed = await read_objects(client, release)
            if installed is not None:
                await scale_down(client, installed)

    async def activity(self, cluster_id: uuid.UUID, release: ReleaseRef) -> ReleaseActivity:
        """Return what still runs of a release."""
        async with self._access.read(cluster_id) as client:
            installed = await read_objects(client, release)
            if installed is None:
                return ReleaseActivity(0)
            return await release_activity(client, cluster_id, installed, self._leases)

    async def scale_up(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Scale the controllers of a release that are at zero to the number that they had, or their manifest has."""
        details = {"release": str(release)}
        async with self._access.write(cluster_id, guard, "cluster.scale_up", details) as client:
            await scale_up(client, _required(await read_objects(client, release), release))

    async def switch_webhooks(
        self, cluster_id: uuid.UUID, release: ReleaseRef, other: ReleaseRef, guard: LeaseGuard
    ) -> None:
        """Point webhooks and conversions at a release, service and CA together, and prove it with a dry-run write.

        Raises `ClusterNotReady` as long as that write does not pass.
        """
        details = {"release": str(release), "other": str(other)}
        async with self._access.write(cluster_id, guard, "cluster.switch_webhooks", details) as client:
            incoming = _required(await read_objects(client, release), release)
            outgoing = await read_objects(client, other)
            await switch_webhooks(client, incoming, outgoing, await self._chart(incoming))

    async def _chart(self, installed: ReleaseObjects) -> str:
        """Return the digest of the chart of a revision; empty if no deployment of the fleet made it."""
        try:
            deployment_id = uuid.UUID(installed.record.labels.get(DEPLOYMENT_LABEL, ""))
        except ValueError:
            return ""
        async with self._transactions.transaction() as connection:
            deployment = await self._rollouts.deployment(connection, deployment_id)
        return deployment.chart_digest if deployment is not None else ""


def _required(installed: ReleaseObjects | None, release: ReleaseRef) -> ReleaseObjects:
    if installed is None:
        raise ClusterRefused(f"release {release} is not installed any more: deploy it again")
    return installed

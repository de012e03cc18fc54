"""Acts and observations on a cluster that are not Helm's: CRDs, health, and the hand-over of blue-green."""

# ruff: noqa: N818 - the names say what happened

import uuid
from typing import Protocol

import msgspec

from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard

__all__ = [
    "ClusterGone",
    "ClusterNotReady",
    "ClusterOperations",
    "ClusterRefused",
    "CrdRequest",
    "ReleaseActivity",
]


class ClusterGone(Exception):
    """The cluster is no longer registered."""


class ClusterNotReady(Exception):
    """The cluster answered that it is too early, as when no pod serves a webhook yet. Try again soon."""


class ClusterRefused(Exception):
    """The cluster answered no, and the same request will not be accepted later. The message is one sentence."""


class CrdRequest(msgspec.Struct, frozen=True):
    """The CRDs of a chart, to be applied to one cluster."""

    cluster_id: uuid.UUID
    chart_digest: str
    deployment_id: uuid.UUID
    live: ReleaseRef
    """The release that runs. Another one than `next` for blue-green: it keeps serving conversions until the switch."""
    next: ReleaseRef
    manifest: bytes = b""
    """The approved manifest: CRDs in templates are taken from here."""
    base_chart: str | None = ""
    """The digest of the chart that a rollback returns to; empty if it is not known, None if a rollback uninstalls."""


class ReleaseActivity(msgspec.Struct, frozen=True):
    """The remains of a release that was asked to stop."""

    pods: int
    lease_holder: str = ""
    """The controller that holds the leader election Lease; empty if it is released."""

    @property
    def stopped(self) -> bool:
        """True if neither pods nor a Lease are left."""
        return self.pods == 0 and not self.lease_holder


class ClusterOperations(Protocol):
    """Operations on managed clusters. Each is idempotent: a repetition after a crash changes nothing more.

    Each raises `ClusterUnreachable` (see `kapsa.fleet.orchestrator.ports.clusters`) or `ClusterGone` as `HelmReleases`
    does, and `ClusterRefused` if the API server rejects a write.
    """

    async def apply_crds(self, request: CrdRequest, guard: LeaseGuard) -> None:
        """Apply the CRDs of a chart by server-side apply, a superset of what is there, after a dry run of all.

        A version that neither this chart nor the one before has is dropped, once nothing is stored in it any more.
        The CRDs of the live release are marked so that Helm deletes none.
        """
        ...

    async def revert_crds(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Restore the conversion and the storage flag of a deployment's CRDs. Nothing is removed.

        Resources that only its chart's webhook can convert are written in the version before first. Return one
        sentence for each CRD with resources for which this failed: they can be read, and lack fields. A repetition
        returns the same sentences.
        """
        ...

    async def return_storage(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Store resources in the version before a deployment, while its controller still converts them.

        Return the same sentences as `revert_crds`.
        """
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
        """Record what an upgrade is compared with, before it: custom resources that fail, and the Leases in use.

        `additions` has the fields that others have added to pod templates, as the plan names them.
        """
        ...

    async def observe(
        self, cluster_id: uuid.UUID, release: ReleaseRef, *, left: tuple[FieldConflict, ...] = ()
    ) -> OperatorHealth:
        """Sweep the cluster now, and return the health of the operator that a release runs.

        Pods whose template somebody has changed prove nothing, except in the fields that the plan has left to others.
        """
        ...

    async def validate_idle(self, cluster_id: uuid.UUID, release: ReleaseRef) -> OperatorHealth:
        """Return evidence about a release at zero replicas: dry runs, images, rights."""
        ...

    async def scale_down(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Scale the controllers of a release to zero, and remember how many there were."""
        ...

    async def activity(self, cluster_id: uuid.UUID, release: ReleaseRef) -> ReleaseActivity:
        """Return what still runs of a release."""
        ...

    async def scale_up(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Scale the controllers of a release that are at zero to the number that they had, or their manifest has."""
        ...

    async def switch_webhooks(
        self, cluster_id: uuid.UUID, release: ReleaseRef, other: ReleaseRef, guard: LeaseGuard
    ) -> None:
        """Point webhooks and conversions at a release, service and CA together, and prove it with a dry-run write.

        Those of the other release no longer match anything.

        Raises `ClusterNotReady` as long as that write does not pass.
        """
        ...

"""The rows of the rollout engine: deployments, their clusters, plans, approvals and events."""

# ruff: noqa: N818 - the names say what happened

import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.rollout.approvals import ApprovalRequest, ApprovalState
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent, VersionDeployment
from kapsa.fleet.domain.rollout.plans import ClusterPlan, RolloutPlan
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetGoal
from kapsa.fleet.orchestrator.ports.leases import LeaseError
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import SealedSecret

__all__ = [
    "ApprovalStore",
    "DeploymentFilter",
    "FenceLost",
    "HeldLease",
    "OperatorInstallation",
    "ReleaseBundle",
    "RolloutClaim",
    "RolloutStore",
]


class FenceLost(LeaseError):
    """The row has been claimed again since: a write with the old fence changes nothing."""


class RolloutClaim(msgspec.Struct, frozen=True):
    """The right to work on a deployment, or on one of its clusters, until the lease lapses."""

    deployment_id: uuid.UUID
    cluster_id: uuid.UUID | None
    """None for the deployment itself."""
    fence: int


class ReleaseBundle(msgspec.Struct, frozen=True):
    """The approved manifest for a cluster, and the values that Helm stores with it. Sealed at rest."""

    manifest: bytes
    values: dict[str, Any]
    rendered: bytes = b""
    """The manifest before fields were left to their owners, if any were: what the next plan starts from."""


class OperatorInstallation(msgspec.Struct, frozen=True):
    """The release that runs an operator on a cluster, as the fleet left it."""

    cluster_id: uuid.UUID
    operator_id: uuid.UUID
    release: ReleaseRef
    revision: int
    version: str
    chart_digest: str
    deployment_id: uuid.UUID | None = None


class HeldLease(msgspec.Struct, frozen=True):
    """A lease as another replica sees it. Each claim and each renewal makes another one of it."""

    deployment_id: uuid.UUID
    cluster_id: uuid.UUID | None
    fence: int
    until: datetime


class DeploymentFilter(msgspec.Struct, frozen=True):
    """A selection of deployments for a list, newest first."""

    operator: str = ""
    phases: frozenset[DeploymentPhase] = frozenset()
    before: tuple[datetime, uuid.UUID] | None = None
    limit: int = 50


class RolloutStore(Protocol):
    """Deployments and their clusters. Each method works in the caller's transaction.

    Lock order: a transaction locks the deployment's row before the rows of its clusters.
    """

    async def now(self, connection: Connection) -> datetime:
        """Return the time that all replicas share."""
        ...

    async def held_leases(self, connection: Connection) -> list[HeldLease]:
        """Return the leases of all replicas on rows that are due."""
        ...

    async def claim(
        self,
        connection: Connection,
        owner: str,
        lease: timedelta,
        *,
        limit: int,
        kept: int = 0,
        clusters: bool = True,
        lapsed: Collection[HeldLease] = (),
    ) -> list[RolloutClaim]:
        """Claim rows that are due and free: decisions, rollbacks, plans, and the other clusters, in this order.

        Clusters may be left out. The last `kept` claims of the limit are for decisions and rollbacks alone. A row whose
        lease is `lapsed` counts as free, unless it was renewed meanwhile. Each claim increments the fence of its row.
        """
        ...

    async def renew(self, connection: Connection, claim: RolloutClaim, lease: timedelta) -> bool:
        """Prolong a lease. Return False if the fence is another one."""
        ...

    async def hand_back(self, connection: Connection, claim: RolloutClaim) -> bool:
        """End a lease before its time. Return False if the fence is another one."""
        ...

    async def next_due(self, connection: Connection) -> datetime | None:
        """Return the time at which the next row becomes due; those that are due and held are left out."""
        ...

    async def insert(
        self,
        connection: Connection,
        deployment: VersionDeployment,
        targets: Iterable[RolloutTarget],
        secret_values: SealedSecret | None,
    ) -> None:
        """Insert a deployment. Raises `StateConflict` if another one is active for an operator on a cluster."""
        ...

    async def deployment(self, connection: Connection, deployment_id: uuid.UUID) -> VersionDeployment | None:
        """Return a deployment."""
        ...

    async def lock(
        self, connection: Connection, deployment_id: uuid.UUID, *, fence: int | None = None
    ) -> VersionDeployment:
        """Lock a deployment's row and return it. Raises `FenceLost` or `UnknownObject`."""
        ...

    async def secret_values(self, connection: Connection, deployment_id: uuid.UUID) -> SealedSecret | None:
        """Return the secret values of a deployment, sealed."""
        ...

    async def save(
        self,
        connection: Connection,
        deployment: VersionDeployment,
        *,
        next_run_at: datetime | None,
        release: bool = False,
    ) -> None:
        """Write a locked deployment; `release` ends the claim. Its clusters become free when it ends."""
        ...

    async def targets(self, connection: Connection, deployment_id: uuid.UUID) -> list[RolloutTarget]:
        """Return the clusters of a deployment, by name."""
        ...

    async def look(
        self, connection: Connection, claim: RolloutClaim
    ) -> tuple[VersionDeployment, RolloutTarget, datetime]:
        """Return the deployment and the cluster of a claim, and the time. Raises `FenceLost`."""
        ...

    async def save_target(
        self,
        connection: Connection,
        claim: RolloutClaim,
        target: RolloutTarget,
        *,
        seen_goal: TargetGoal,
        release: bool,
    ) -> bool:
        """Write a claimed cluster, all but its goal. Raises `FenceLost`.

        A goal that changed meanwhile makes the row due now. Return True if it did not change.
        """
        ...

    async def direct(self, connection: Connection, target: RolloutTarget) -> None:
        """Set the goal of a cluster and make it due, whatever is claimed: an act under way is finished first."""
        ...

    async def reset(self, connection: Connection, target: RolloutTarget) -> None:
        """Write a cluster of a locked deployment, and end a claim on it: the fence moves on."""
        ...

    async def wake(
        self, connection: Connection, deployment_id: uuid.UUID, events: Iterable[RolloutEvent]
    ) -> None:
        """Make a deployment due, and append to its history. Locks its row."""
        ...

    async def append(
        self, connection: Connection, deployment_id: uuid.UUID, events: Iterable[RolloutEvent]
    ) -> None:
        """Append to the history of a locked deployment."""
        ...

    async def events(
        self, connection: Connection, deployment_id: uuid.UUID, *, after: int, limit: int
    ) -> list[RolloutEvent]:
        """Return the history after a sequence number."""
        ...

    async def page(self, connection: Connection, chosen: DeploymentFilter) -> list[VersionDeployment]:
        """Return deployments, newest first."""
        ...

    async def running(self, connection: Connection) -> int:
        """Count the deployments at work. Serializes with other transactions that ask, until they end."""
        ...

    async def rolling_back(self, connection: Connection, operator_id: uuid.UUID) -> bool:
        """Return whether a deployment of the operator is being rolled back: new ones wait."""
        ...

    async def save_plan(
        self,
        connection: Connection,
        deployment_id: uuid.UUID,
        plan: RolloutPlan,
        digest: str,
        bundles: Mapping[uuid.UUID, SealedSecret],
    ) -> None:
        """Store the plan in place of the one before, with its sealed bundles."""
        ...

    async def plan(self, connection: Connection, deployment_id: uuid.UUID) -> RolloutPlan | None:
        """Return the plan of a deployment."""
        ...

    async def cluster_plan(
        self, connection: Connection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> ClusterPlan | None:
        """Return the part of a plan that is for one cluster."""
        ...

    async def bundle(
        self, connection: Connection, deployment_id: uuid.UUID, cluster_id: uuid.UUID
    ) -> SealedSecret | None:
        """Return what is applied to a cluster, sealed."""
        ...

    async def installation(
        self, connection: Connection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> OperatorInstallation | None:
        """Return the release that the fleet left on a cluster."""
        ...

    async def record_installation(self, connection: Connection, installation: OperatorInstallation) -> None:
        """Record the release that the fleet left on a cluster. Revision 0 removes the record."""
        ...

    async def held(self, connection: Connection, cluster_id: uuid.UUID, operator_id: uuid.UUID) -> bool:
        """Return whether an active deployment of the operator includes the cluster."""
        ...


class ApprovalStore(Protocol):
    """Approvals. Each method works in the caller's transaction."""

    async def insert(self, connection: Connection, requests: Iterable[ApprovalRequest]) -> None:
        """Insert new requests."""
        ...

    async def get(self, connection: Connection, approval_id: uuid.UUID) -> ApprovalRequest | None:
        """Return a request."""
        ...

    async def of(self, connection: Connection, deployment_id: uuid.UUID) -> list[ApprovalRequest]:
        """Return all requests of a deployment, oldest first."""
        ...

    async def save(self, connection: Connection, request: ApprovalRequest) -> None:
        """Write a request of a locked deployment."""
        ...

    async def page(
        self,
        connection: Connection,
        *,
        states: frozenset[ApprovalState],
        before: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> list[ApprovalRequest]:
        """Return requests, newest first."""
        ...

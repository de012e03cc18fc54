"""Helm, as the rollout engine uses it."""

# ruff: noqa: N818 - the names say what happened

import uuid
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.releases import ReleaseRecord, ReleaseRef
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard

__all__ = ["HelmFailed", "HelmInterrupted", "HelmRefused", "HelmReleases", "ReleaseError", "UpgradeRequest"]


class ReleaseError(Exception):
    """The base of errors of a Helm run."""


class HelmFailed(ReleaseError):
    """Helm ran and gave up. The history has a failed revision."""


class HelmRefused(ReleaseError):
    """Helm did not begin: the release is pending, or a record changed before it could be removed."""


class HelmInterrupted(ReleaseError):
    """Helm could not be started, or was ended from outside before it was done: try again.

    A revision that it has begun is pending, and ours.
    """


class UpgradeRequest(msgspec.Struct, frozen=True):
    """An install or an upgrade of exactly these bytes."""

    cluster_id: uuid.UUID
    release: ReleaseRef
    chart_digest: str
    manifest: bytes
    """The approved manifest: what the post-renderer emits."""
    values: dict[str, Any]
    labels: dict[str, str]
    description: str
    on_conflict: ConflictPolicy
    idle: bool = False
    """Blue-green: install with zero replicas."""


class HelmReleases(Protocol):
    """The releases of all clusters.

    Each method raises `ClusterUnreachable` if the cluster does not answer, and `ClusterGone` if it is no longer
    registered. Each that writes takes the guard of the caller's lease and checks it before each write. A run of Helm
    raises `HelmInterrupted` if it could not be started, or something ended it. `ClusterRefused` means that a right is missing.
    """

    async def history(self, cluster_id: uuid.UUID, release: ReleaseRef) -> tuple[ReleaseRecord, ...]:
        """Return the revisions of a release; none if it is not installed."""
        ...

    async def upgrade(self, request: UpgradeRequest, guard: LeaseGuard) -> int:
        """Install or upgrade a release, and return its new revision.

        Raises `HelmRefused` if the release is pending, and `HelmFailed` if Helm gave up.
        """
        ...

    async def rollback(
        self,
        cluster_id: uuid.UUID,
        release: ReleaseRef,
        revision: int,
        guard: LeaseGuard,
        *,
        left: tuple[FieldConflict, ...] = (),
    ) -> int:
        """Return a release to the content of an earlier revision, pending or not. Return the new revision.

        `left` are the fields that stay with their owners, although that revision has them.
        """
        ...

    async def uninstall(self, cluster_id: uuid.UUID, release: ReleaseRef, guard: LeaseGuard) -> None:
        """Remove a release with its history, and no CRD."""
        ...

    async def remove_pending(
        self, cluster_id: uuid.UUID, release: ReleaseRef, record: ReleaseRecord, guard: LeaseGuard
    ) -> None:
        """Delete one pending record, by its UID and resource version. Raises `HelmRefused` if it has changed."""
        ...

"""Trials: a manifest is tried on a cluster, object by object, and nothing is changed."""

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict, PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef

__all__ = ["ConflictTrials", "PresentRelease", "ReleaseTrials", "TrialReport", "TrialRequest"]


class PresentRelease(msgspec.Struct, frozen=True):
    """The release that an upgrade replaces."""

    manifest: str
    values: Mapping[str, Any] = {}
    client_side: bool = False
    """True if Helm has patched its objects itself: it takes its own fields over at the first server-side apply."""

    def __repr__(self) -> str:
        return "PresentRelease()"


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that Helm would apply to a cluster."""

    cluster_id: uuid.UUID
    release: ReleaseRef
    manifest: bytes
    on_conflict: ConflictPolicy
    replaced: PresentRelease | None = None
    """The revision before in the same release; None if Helm installs it."""
    running: PresentRelease | None = None
    """The release that runs now, which the diff starts from: `replaced`, except in blue-green."""
    chart: bytes = b""
    """The archive, which Helm stores with the release."""
    values: Mapping[str, Any] = {}
    secret_paths: frozenset[tuple[str, ...]] = frozenset()
    crds: tuple[Mapping[str, Any], ...] = ()
    """The CRDs of the version that are not in the manifest. They are applied before it."""
    live: ReleaseRef | None = None
    """The release that runs now, if it is another one, as in blue-green."""

    def __repr__(self) -> str:
        return f"TrialRequest({self.release} on {self.cluster_id})"


class TrialReport(msgspec.Struct, frozen=True):
    """The answer of a cluster to a manifest."""

    manifest: bytes
    """The manifest to apply: without the fields that are left to their owners."""
    conflicts: tuple[FieldConflict, ...] = ()
    problems: tuple[PreflightProblem, ...] = ()
    notices: tuple[str, ...] = ()
    diff: str = ""
    additions: tuple[FieldConflict, ...] = ()
    """The fields that other managers have added to pod templates."""


class ReleaseTrials(Protocol):
    """Clusters on which manifests are tried."""

    async def attempt(self, request: TrialRequest) -> TrialReport:
        """Try a manifest. Raises `ClusterUnreachable` if the cluster does not answer."""
        ...


class ConflictTrials(Protocol):
    """Clusters on which an approved manifest is tried once more, right before it is applied."""

    async def conflicts(
        self, cluster: ManagedCluster, release: ReleaseRef, manifest: bytes
    ) -> tuple[FieldConflict, ...]:
        """Return the fields of a manifest that other managers own with another value.

        Raises `ClusterUnreachable` if the cluster does not answer.
        """
        ...

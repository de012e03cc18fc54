"""Plans: what a deployment would do to each cluster, and the digest that an approval is bound to.

The digest covers what decides the outcome. Counts, times and masked diffs are shown and not hashed.
"""

import enum
import hashlib
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, OfflinePolicy
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import RolloutStage, RolloutStrategy
from kapsa.fleet.domain.values import canonical_json

__all__ = [
    "ClusterPlan",
    "CrdChange",
    "FieldConflict",
    "LiveVerdict",
    "PreflightProblem",
    "RejectedShare",
    "RolloutPlan",
    "plan_digest",
]


class RejectedShare(enum.StrEnum):
    """The share of the live resources that the new schema would reject: the class is hashed, the count is not."""

    NONE = "None"
    SOME = "Some"
    ALL = "All"
    UNKNOWN = "Unknown"
    """Not every resource could be read, and none of those read would be rejected."""


class LiveVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """The resources of one CRD on one cluster, judged by the new schema."""

    crd: str
    checked: int
    rejected: int
    examples: tuple[str, ...] = ()
    """`namespace/name: reason` of the first few."""
    partial_reason: str = ""
    """Non-empty if not every resource could be read."""
    pruned: int = 0
    """Resources that would lose fields at their next write."""

    @property
    def share(self) -> RejectedShare:
        """The class of the verdict."""
        if self.rejected == 0:
            return RejectedShare.UNKNOWN if self.partial_reason else RejectedShare.NONE
        return RejectedShare.ALL if self.rejected == self.checked else RejectedShare.SOME


class CrdChange(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD that the deployment would change on a cluster."""

    name: str
    severity: str
    """`breaking`, `warning` or `safe`: the worst finding."""
    findings: tuple[str, ...]
    """`severity rule path` of each finding, sorted: what is hashed. The API serves the full findings."""
    one_way: bool


class FieldConflict(msgspec.Struct, frozen=True, rename="camel"):
    """A field that another manager owns."""

    object: str
    field: str
    manager: str


class PreflightProblem(msgspec.Struct, frozen=True, rename="camel"):
    """A reason why the deployment cannot succeed on a cluster as things are."""

    check: str
    """A stable word: `MissingKind`, `MissingNamespace`, `KubeVersion`, `Rights`, `ReleaseTooLarge`, `OtherOwner`,
    `AdmissionDenied`, `AdmissionFailed`, `InvalidObject`, `InvalidManifest`, `Conflict`, `CrdBlocked`, `CrdInvalid`,
    `CrdUnreadable`, `NeverOpen`."""
    message: str


class ClusterPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The plan for one cluster."""

    cluster_id: uuid.UUID
    cluster_name: str
    environment: ClusterEnvironment
    stage: int
    live: ReleaseRef
    """The release that runs now; the one to make if none does."""
    next: ReleaseRef
    """The release that the deployment changes: `live`, except in blue-green."""
    present_revision: int
    """0 when the operator is not installed."""
    present_version: str
    values_digest: str
    """SHA-256 of the merged values, secret ones included by their own hash."""
    manifest_digest: str
    """SHA-256 of the rendered manifest: exactly these bytes are applied."""
    present_chart: str = ""
    """The chart digest of the present revision; empty if another client installed it."""
    crds: tuple[CrdChange, ...] = ()
    verdicts: tuple[LiveVerdict, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    additions: tuple[FieldConflict, ...] = ()
    """The fields that other managers have added to pod templates, which the upgrade leaves as they are."""
    problems: tuple[PreflightProblem, ...] = ()
    diff: str = ""
    """A unified diff of the manifests, with secret values masked."""
    values: dict[str, Any] = {}
    """The merged values, masked, for people."""
    notices: tuple[str, ...] = ()
    """Facts for people that stop nothing: a closed window, an object that could not be tried. Shown, not hashed."""

    @property
    def breaking(self) -> bool:
        """True if a CRD changes in a way that may reject or lose existing data."""
        return any(change.severity == "breaking" for change in self.crds)

    @property
    def one_way(self) -> bool:
        """True if the step on this cluster cannot be undone."""
        return any(change.one_way for change in self.crds)


class RolloutPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The plan of a deployment."""

    operator_id: uuid.UUID
    operator_name: str
    version: str
    chart_digest: str
    strategy: RolloutStrategy
    on_conflict: ConflictPolicy
    on_offline: OfflinePolicy
    stages: tuple[RolloutStage, ...]
    clusters: tuple[ClusterPlan, ...]
    skipped: tuple[str, ...] = ()
    """Clusters that could not be reached and are left out, by policy."""
    force_reason: str = ""
    window_override_reason: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each reason why the plan cannot be carried out."""
        return tuple(
            f"{cluster.cluster_name}: {problem.message}"
            for cluster in self.clusters
            for problem in cluster.problems
        )


def plan_digest(plan: RolloutPlan) -> str:
    """Return the digest that approvals are bound to: `sha256:…`."""
    document = {
        "operator": str(plan.operator_id),
        "version": plan.version,
        "chart": plan.chart_digest,
        "strategy": msgspec.to_builtins(plan.strategy),
        "policies": [plan.on_conflict.value, plan.on_offline.value],
        "overrides": [plan.force_reason, plan.window_override_reason],
        "stages": msgspec.to_builtins(plan.stages),
        "clusters": [_hashed(cluster) for cluster in sorted(plan.clusters, key=lambda item: item.cluster_id)],
        "skipped": sorted(plan.skipped),
    }
    return "sha256:" + hashlib.sha256(canonical_json(document)).hexdigest()


def _hashed(cluster: ClusterPlan) -> dict[str, Any]:
    return {
        "id": str(cluster.cluster_id),
        "environment": cluster.environment.value,
        "stage": cluster.stage,
        "releases": [str(cluster.live), str(cluster.next)],
        "revision": cluster.present_revision,
        "values": cluster.values_digest,
        "manifest": cluster.manifest_digest,
        "crds": sorted([change.name, change.one_way, *sorted(change.findings)] for change in cluster.crds),
        "verdicts": sorted([verdict.crd, verdict.share.value] for verdict in cluster.verdicts),
        "conflicts": _fields(cluster.conflicts),
        "additions": _fields(cluster.additions),
    }


def _fields(owned: Iterable[FieldConflict]) -> list[list[str]]:
    return sorted([each.object, each.field, each.manager] for each in owned)

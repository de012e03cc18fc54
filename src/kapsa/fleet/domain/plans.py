"""Plans: what a deployment would do to each cluster, and the digest that an approval is bound to.

The digest covers what decides the outcome. Counts, times and masked diffs are shown and not hashed.
"""

import enum
import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.clusters import ClusterEnvironment
from kapsa.fleet.domain.deployments import ConflictPolicy, OfflinePolicy
from kapsa.fleet.domain.strategies import RolloutStage, RolloutStrategy

__all__ = [
    "ClusterPlan",
    "CrdChange",
    "FieldConflict",
    "LiveVerdict",
    "PreflightProblem",
    "RejectedShare",
    "RolloutPlan",
    "canonical_json",
    "plan_digest",
]


class RejectedShare(enum.StrEnum):
    """The share of the live resources that the new schema would reject: the class is hashed, the count is not."""

    NONE = "None"
    SOME = "Some"
    ALL = "All"


class LiveVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """The resources of one CRD on one cluster, judged by the new schema."""

    crd: str
    checked: int
    rejected: int
    examples: tuple[str, ...] = ()
    """`namespace/name: reason` of the first few."""
    partial_reason: str = ""
    """Non-empty if not every resource could be read."""

    @property
    def share(self) -> RejectedShare:
        """The class of the verdict."""
        if self.rejected == 0:
            return RejectedShare.NONE
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
    """A stable word: `MissingKind`, `KubeVersion`, `Rights`, `ReleaseTooLarge`, `OtherOwner`, `AdmissionDenied`."""
    message: str


class ClusterPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The plan for one cluster."""

    cluster_id: uuid.UUID
    cluster_name: str
    environment: ClusterEnvironment
    stage: int
    present_revision: int
    """0 when the operator is not installed."""
    present_version: str
    values_digest: str
    """SHA-256 of the merged values, secret ones included by their own hash."""
    manifest_digest: str
    """SHA-256 of the rendered manifest: exactly these bytes are applied."""
    crds: tuple[CrdChange, ...] = ()
    verdicts: tuple[LiveVerdict, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    problems: tuple[PreflightProblem, ...] = ()
    diff: str = ""
    """A unified diff of the manifests, with secret values masked."""
    values: dict[str, Any] = {}
    """The merged values, masked, for people."""

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


def plan_digest(plan: RolloutPlan) -> str:
    """Return the digest that approvals are bound to: `sha256:…`."""
    document = {
        "operator": str(plan.operator_id),
        "version": plan.version,
        "chart": plan.chart_digest,
        "strategy": msgspec.to_builtins(plan.strategy),
        "policies": [plan.on_conflict.value, plan.on_offline.value],
        "stages": msgspec.to_builtins(plan.stages),
        "clusters": [_hashed(cluster) for cluster in sorted(plan.clusters, key=lambda item: item.cluster_id)],
    }
    return "sha256:" + hashlib.sha256(canonical_json(document)).hexdigest()


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _hashed(cluster: ClusterPlan) -> dict[str, Any]:
    return {
        "id": str(cluster.cluster_id),
        "stage": cluster.stage,
        "revision": cluster.present_revision,
        "values": cluster.values_digest,
        "manifest": cluster.manifest_digest,
        "crds": {
            change.name: [*change.findings, "one-way" if change.one_way else "reversible"]
            for change in cluster.crds
        },
        "verdicts": {verdict.crd: verdict.share.value for verdict in cluster.verdicts},
        "conflicts": sorted(f"{item.object} {item.field} {item.manager}" for item in cluster.conflicts),
    }

"""Requests about CRDs, and their results."""

import uuid
from datetime import datetime
from typing import Annotated, Any

import msgspec

from kapsa.fleet.domain.crds import (
    ChangeSeverity,
    CrdComparison,
    CrdFinding,
    FindingSummary,
    MigrationGuide,
    summarize,
)
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.plans import LiveVerdict
from kapsa.fleet.orchestrator.ports.crds import CrdApproval, CrdOnCluster, CrdRevision

__all__ = [
    "ApproveCrd",
    "ClusterCrdChange",
    "CrdDetail",
    "CrdValidation",
    "StoreCrd",
    "ValidateCrd",
]


class StoreCrd(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to store a CRD that the chart of a version does not bring along."""

    operator: str
    version: str
    """A registered version of the operator."""
    definition: dict[str, Any]
    """The CustomResourceDefinition."""


class ValidateCrd(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to compare two versions of a CRD, and to judge live resources by the newer one."""

    operator: str
    version: str = ""
    """The version to go to; the newest one if it is left out."""
    from_version: str = ""
    """The version to come from; the one before `version` that has the CRD if it is left out."""
    clusters: tuple[str, ...] | None = None
    """The clusters whose resources are judged; all that have the CRD if it is left out."""


class ApproveCrd(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to approve a breaking or one-way change of a CRD."""

    operator: str
    version: str
    digest: str
    """The digest that validation returned: the approval counts for exactly these findings."""
    from_version: str = ""
    comment: Annotated[str, msgspec.Meta(max_length=2000)] = ""


class CrdDetail(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD with its history, and its state on every cluster that has it."""

    name: str
    revisions: tuple[CrdRevision, ...]
    """The newest version of each operator first."""
    clusters: tuple[CrdOnCluster, ...]
    approvals: tuple[CrdApproval, ...]


class ClusterCrdChange(msgspec.Struct, frozen=True, rename="camel"):
    """The change that one cluster would see: from the CRD that it has, with the resources that it has."""

    cluster_id: uuid.UUID
    cluster: str
    environment: ClusterEnvironment
    kubernetes_version: str
    severity: ChangeSeverity | None
    """None if the cluster could not be read."""
    one_way: bool
    blocked: bool
    summary: FindingSummary | None
    verdict: LiveVerdict | None
    line: str
    """The verdict in one line."""


class CrdValidation(msgspec.Struct, frozen=True, rename="camel"):
    """The comparison of two versions of a CRD, and the verdict on live resources."""

    name: str
    operator: str
    from_version: str
    """Empty if the CRD is new in this version."""
    version: str
    digest: str
    severity: ChangeSeverity
    one_way: bool
    one_way_reasons: tuple[str, ...]
    summary: FindingSummary
    findings: tuple[CrdFinding, ...]
    backward: tuple[CrdFinding, ...]
    guides: tuple[MigrationGuide, ...]
    clusters: tuple[ClusterCrdChange, ...]
    validated_at: datetime
    approval: CrdApproval | None = None
    """The approval of exactly these findings, if there is one."""

    @classmethod
    def of(cls, comparison: CrdComparison, **more: Any) -> "CrdValidation":
        """Return the validation with these findings."""
        return cls(
            name=comparison.name,
            severity=comparison.severity,
            one_way=comparison.one_way,
            one_way_reasons=comparison.one_way_reasons,
            summary=summarize(comparison.findings),
            findings=comparison.findings,
            backward=comparison.backward,
            **more,
        )

"""CRDs: their repository, and the CRDs and custom resources that clusters have."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = [
    "CrdApproval",
    "CrdListing",
    "CrdOnCluster",
    "CrdRepository",
    "CrdRevision",
    "LiveResources",
    "ResourcesUnreadable",
]


class CrdListing(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD of an operator, as lists show it."""

    name: str
    operator: str
    group: str
    kind: str
    scope: str
    newest_version: str
    """The newest version of the operator that has the CRD."""
    revisions: int
    """The number of versions of the operator that have it."""


class CrdRevision(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD as one version of an operator has it."""

    operator_id: uuid.UUID
    operator: str
    version: str
    name: str
    location: str
    """`crds` or `templates` of the chart, or `upload` if it was stored separately."""
    digest: str
    """Equal for equal definitions."""
    created_at: datetime
    created_by: str
    migration_guide: str = ""


class CrdOnCluster(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD on a cluster, by the cluster's last inventory."""

    cluster_id: uuid.UUID
    cluster: str
    environment: ClusterEnvironment
    kubernetes_version: str
    served_versions: tuple[str, ...]
    storage_version: str
    stored_versions: tuple[str, ...]
    managed_by: str
    """Another program that manages the CRD; empty if none does."""
    taken_at: datetime


class CrdApproval(msgspec.Struct, frozen=True, rename="camel"):
    """An admin's agreement to a change of a CRD. It is bound to the digest of the findings."""

    operator_id: uuid.UUID
    version: str
    name: str
    from_version: str
    """The version that was compared with; empty for a CRD without a predecessor."""
    digest: str
    approved_by: str
    approved_at: datetime
    comment: str = ""


class CrdRepository(Protocol):
    """CRDs of operators in the database. Each method works in the caller's transaction."""

    async def insert(
        self, connection: Connection, operator_id: uuid.UUID, version: str, crd: ChartCrd, created_by: str
    ) -> bool:
        """Insert a CRD that is stored separately. Return False if the version has one of the name already."""
        ...

    async def count(self, connection: Connection, operator_id: uuid.UUID, version: str) -> int:
        """Return the number of CRDs of a version."""
        ...

    async def page(
        self, connection: Connection, *, after: tuple[str, str], limit: int, operator: str, prefix: str
    ) -> list[CrdListing]:
        """Return CRDs in the order of their names and operators, after such a pair."""
        ...

    async def revisions(
        self, connection: Connection, name: str, *, operator: str, limit: int
    ) -> list[CrdRevision]:
        """Return the revisions of a CRD, the newest version first; those of one operator unless it is empty."""
        ...

    async def revision(
        self, connection: Connection, operator_id: uuid.UUID, version: str, name: str
    ) -> CrdRevision | None:
        """Return the revision of a CRD in one version."""
        ...

    async def definition(
        self, connection: Connection, operator_id: uuid.UUID, version: str, name: str
    ) -> dict[str, Any] | None:
        """Return the definition of a CRD in one version."""
        ...

    async def clusters(self, connection: Connection, name: str) -> list[CrdOnCluster]:
        """Return the clusters that have a CRD, by their last inventories, in the order of their names."""
        ...

    async def insert_approval(self, connection: Connection, approval: CrdApproval) -> bool:
        """Insert an approval. Return False if the same digest is approved already."""
        ...

    async def approvals(self, connection: Connection, name: str, *, operator: str) -> list[CrdApproval]:
        """Return the approvals of a CRD, newest first; those of one operator unless it is empty."""
        ...


class ResourcesUnreadable(Exception):  # noqa: N818 - named after what happened
    """A cluster that does not let its CRDs or custom resources be read. The message is one sentence for people."""


class LiveResources(Protocol):
    """The CRDs and custom resources of clusters, read now.

    Each method raises `ResourcesUnreadable`, with the reason, if the cluster gives no usable answer.
    """

    async def definition(self, cluster_id: uuid.UUID, name: str) -> Mapping[str, Any] | None:
        """Return a CRD with its status, None if the cluster does not have it."""
        ...

    def pages(self, cluster_id: uuid.UUID, crd: Mapping[str, Any]) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield all custom resources of a CRD that the cluster has, page by page, in its stored version."""
        ...

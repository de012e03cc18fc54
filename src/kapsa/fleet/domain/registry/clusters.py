"""Managed clusters, as the fleet sees them."""

import enum
import uuid
from datetime import datetime

import msgspec

from kapsa.fleet.domain.registry.windows import ChangeFreeze, MaintenanceWindow

__all__ = ["ClusterCondition", "ClusterEnvironment", "ClusterHealth", "ManagedCluster"]


class ClusterEnvironment(enum.StrEnum):
    """The kind of use that a cluster has. Rollouts go through them in this order."""

    DEV = "Dev"
    STAGING = "Staging"
    PRODUCTION = "Production"

    @property
    def rank(self) -> int:
        """The position in a rollout: Dev first, Production last."""
        return list(ClusterEnvironment).index(self)


class ClusterCondition(enum.StrEnum):
    """The health of a cluster."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class ClusterHealth(msgspec.Struct, frozen=True, rename="camel"):
    """One reading of a cluster's health."""

    condition: ClusterCondition
    reason: str = ""
    """One sentence if the cluster is not healthy."""
    kubernetes_version: str = ""
    nodes: int = 0
    nodes_ready: int = 0
    latency_ms: float | None = None
    last_checked: datetime | None = None
    warnings: tuple[str, ...] = ()
    """Things that a person should do in time, as with a kubeconfig that is about to expire."""


class ManagedCluster(msgspec.Struct, frozen=True, rename="camel"):
    """A registered cluster. Its credential is stored apart, sealed, and never part of this."""

    id: uuid.UUID
    name: str
    environment: ClusterEnvironment
    labels: dict[str, str]
    server: str
    """The address of the API server, for people: the credential's own is what is used."""
    health: ClusterHealth
    created_at: datetime
    created_by: str
    windows: tuple[MaintenanceWindow, ...] = ()
    """Times at which the cluster may be changed. None means at any time."""
    freezes: tuple[ChangeFreeze, ...] = ()
    has_upload: bool = True
    """False after the uploaded kubeconfig was discarded: an outage longer than a token's life needs a new one."""
    version: int = 1
    """Incremented with every change: the ETag, and part of what a sealed credential is bound to."""

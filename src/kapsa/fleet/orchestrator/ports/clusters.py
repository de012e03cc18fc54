"""Clusters: their repository, and sessions with the clusters themselves."""

import uuid
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ClusterHealth, ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory, ForeignManager, InstalledRelease
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import SealedSecret

__all__ = [
    "Adoption",
    "CheckClaim",
    "ClusterCredential",
    "ClusterFilter",
    "ClusterGateway",
    "ClusterIdentity",
    "ClusterReading",
    "ClusterRepository",
    "ClusterSession",
    "ClusterUnreachable",
    "CredentialRejected",
    "CredentialUnavailable",
    "IssuedAccess",
    "ReleaseContent",
    "ServiceAccountRef",
]


class ClusterUnreachable(Exception):  # noqa: N818 - named after what happened
    """A cluster that gave no usable answer. The message is one sentence for people."""


class CredentialRejected(ClusterUnreachable):
    """A cluster that does not accept our credential any more."""


class CredentialUnavailable(ClusterUnreachable):
    """A cluster whose credential cannot be opened now. Nothing is wrong with the cluster: it is waited for."""


class ClusterIdentity(msgspec.Struct, frozen=True):
    """The cluster that a credential leads to."""

    server: str
    version: str
    uid: str
    """The UID of the namespace kube-system, which no two clusters share; empty if it may not be read."""
    valid_until: datetime | None = None
    """The time at which the first certificate or token of the kubeconfig expires; None if none does."""


class ServiceAccountRef(msgspec.Struct, frozen=True):
    """The account of this manager in a cluster."""

    name: str
    cluster_role: str
    """The ClusterRole that it is bound to."""


class IssuedAccess(msgspec.Struct, frozen=True):
    """A kubeconfig with a short-lived token."""

    kubeconfig: bytes
    lifetime: timedelta
    credential_id: str = ""
    """The id of the token, as the audit log of the cluster has it."""

    def __repr__(self) -> str:
        return f"IssuedAccess(lifetime={self.lifetime})"


class ClusterReading(msgspec.Struct, frozen=True):
    """One look at a cluster."""

    version: str
    ready: bool
    ready_message: str
    nodes: int
    nodes_ready: int
    latency_ms: float


class ReleaseContent(msgspec.Struct, frozen=True):
    """A release with what it was installed from."""

    release: InstalledRelease
    values: dict[str, Any]
    manifest: str
    managers: tuple[ForeignManager, ...]
    """Other programs that manage objects of the release."""
    client_side: bool = False
    """True if Helm has patched the objects itself, as Helm 3 does."""

    def __repr__(self) -> str:
        return f"ReleaseContent({self.release})"


class ClusterSession(Protocol):
    """A connection to one cluster with one credential.

    Every method raises ClusterUnreachable, with the reason, if the cluster gives no usable answer.
    """

    async def identify(self) -> ClusterIdentity:
        """Return the cluster that this is."""
        ...

    async def bootstrap(self, account: ServiceAccountRef) -> IssuedAccess:
        """Create the account of this manager, or repair it, and return a token for it."""
        ...

    async def issue(self, account: ServiceAccountRef) -> IssuedAccess:
        """Return a new token for the account of this manager."""
        ...

    async def withdraw(self, account: ServiceAccountRef) -> None:
        """Delete the account of this manager, and with it every token."""
        ...

    async def read_health(self) -> ClusterReading:
        """Return version, readiness, nodes and latency."""
        ...

    async def take_inventory(self, now: datetime) -> ClusterInventory:
        """Return the Helm releases and CRDs."""
        ...

    async def api_versions(self) -> tuple[str, ...]:
        """Return the API versions and kinds that the cluster serves: `apps/v1`, `apps/v1/Deployment`."""
        ...

    async def release(self, namespace: str, name: str) -> ReleaseContent | None:
        """Return a Helm release, or None if there is none."""
        ...


class ClusterGateway(Protocol):
    """The way into clusters."""

    def connect(self, kubeconfig: bytes) -> AbstractAsyncContextManager[ClusterSession]:
        """Open a session.

        Raises InvalidInput that names the field if the kubeconfig has anything that is not allowed.
        """
        ...


class ClusterCredential(msgspec.Struct, frozen=True):
    """A sealed credential of a cluster."""

    purpose: str
    version: int
    sealed: SealedSecret
    renew_at: datetime | None = None
    expires_at: datetime | None = None


class ClusterFilter(msgspec.Struct, frozen=True):
    """The clusters that a list shows."""

    environment: ClusterEnvironment | None = None
    labels: dict[str, str] = {}
    """Labels that a cluster must have."""
    prefix: str = ""


class CheckClaim(msgspec.Struct, frozen=True):
    """A cluster whose health check is ours until the next one is due."""

    cluster: ManagedCluster
    fence: int


class Adoption(msgspec.Struct, frozen=True):
    """A release of an operator that was there before, and the sealed values that it was installed with."""

    cluster_id: uuid.UUID
    operator_id: uuid.UUID
    release: str
    namespace: str
    revision: int
    version: str
    adopted_by: str
    values_version: int
    values: SealedSecret


class ClusterRepository(Protocol):
    """Clusters in the database. Each method works in the caller's transaction."""

    async def insert(self, connection: Connection, cluster: ManagedCluster, uid: str) -> bool:
        """Insert a cluster. Return False if its name is taken."""
        ...

    async def update(self, connection: Connection, cluster: ManagedCluster, *, expected: int) -> bool:
        """Write a cluster but for its health. Return False unless its stored version is `expected`."""
        ...

    async def delete(
        self, connection: Connection, cluster_id: uuid.UUID
    ) -> Sequence[tuple[uuid.UUID, str]] | None:
        """Delete a cluster with its credentials, and the values that operators have for it.

        Return id and name of those operators, or None if something still refers to the cluster.
        """
        ...

    async def get(self, connection: Connection, name: str) -> ManagedCluster | None:
        """Return a cluster by its name."""
        ...

    async def by_id(self, connection: Connection, cluster_id: uuid.UUID) -> ManagedCluster | None:
        """Return a cluster by its id."""
        ...

    async def name_of_uid(self, connection: Connection, uid: str) -> str | None:
        """Return the name under which the cluster with this UID is registered."""
        ...

    async def uid(self, connection: Connection, cluster_id: uuid.UUID) -> str:
        """Return the UID of a cluster; empty if it is unknown."""
        ...

    async def page(
        self, connection: Connection, *, after: str, limit: int, chosen: ClusterFilter
    ) -> list[ManagedCluster]:
        """Return clusters in the order of their names, after a name."""
        ...

    async def put_credential(
        self, connection: Connection, cluster_id: uuid.UUID, credential: ClusterCredential
    ) -> bool:
        """Store a credential in place of the version before it. Return False if another one was faster."""
        ...

    async def erase_credential(self, connection: Connection, cluster_id: uuid.UUID, purpose: str) -> bool:
        """Erase a credential. Return False if there was none."""
        ...

    async def credential(
        self, connection: Connection, cluster_id: uuid.UUID, purpose: str
    ) -> ClusterCredential | None:
        """Return the credential for a purpose."""
        ...

    async def claim_checks(
        self, connection: Connection, *, interval: timedelta, limit: int, at_work: Sequence[uuid.UUID] = ()
    ) -> Sequence[CheckClaim]:
        """Claim clusters whose health check is due. No other replica gets them before the next one is due.

        Those at work are left out.
        """
        ...

    async def next_check(self, connection: Connection) -> datetime | None:
        """Return the time of the next health check."""
        ...

    async def put_health(
        self, connection: Connection, cluster_id: uuid.UUID, fence: int, health: ClusterHealth
    ) -> bool:
        """Write the health of a cluster. Return False if a later check was claimed meanwhile."""
        ...

    async def put_inventory(
        self, connection: Connection, cluster_id: uuid.UUID, inventory: ClusterInventory
    ) -> None:
        """Store an inventory in place of the one before."""
        ...

    async def inventory(self, connection: Connection, cluster_id: uuid.UUID) -> ClusterInventory | None:
        """Return the last inventory."""
        ...

    async def put_adoption(self, connection: Connection, adoption: Adoption) -> None:
        """Store an adoption in place of the one before."""
        ...

    async def adoption(
        self, connection: Connection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> Adoption | None:
        """Return the adoption of an operator's release."""
        ...

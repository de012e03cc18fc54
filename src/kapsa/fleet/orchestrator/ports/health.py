"""Stored health: readings of releases, baselines of upgrades, and the sweeps that replicas share."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.health.memory import HealthMemory, ResourceBaseline
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["ClusterHealthSweeper", "HealthStore", "ReleaseOrigin", "StoredReading", "SweepClaim"]


class ReleaseOrigin(msgspec.Struct, frozen=True):
    """The registered operator behind a release."""

    operator_id: uuid.UUID
    chart_digest: str = ""
    """Empty for a release that was adopted: its archive was never seen."""
    crds: tuple[str, ...] = ()
    """The names of the CRDs of its version, wherever the chart has them."""


class StoredReading(msgspec.Struct, frozen=True):
    """The last reading of a release, and what it leaves for the next."""

    health: OperatorHealth
    memory: HealthMemory
    checked_at: datetime


class SweepClaim(msgspec.Struct, frozen=True):
    """A cluster whose sweep is ours until the next one is due."""

    cluster_id: uuid.UUID
    fence: int


class HealthStore(Protocol):
    """Health in the database. Each method works in the caller's transaction."""

    async def origin(
        self, connection: Connection, cluster_id: uuid.UUID, release: ReleaseRef, deployment: str
    ) -> ReleaseOrigin | None:
        """Return the operator of a release, by the deployment that its labels name, or else by its name."""
        ...

    async def chart_origin(
        self, connection: Connection, operator_id: uuid.UUID, chart_digest: str
    ) -> ReleaseOrigin:
        """Return the CRDs of an operator's chart."""
        ...

    async def releases(self, connection: Connection, cluster_id: uuid.UUID) -> Sequence[ReleaseRef]:
        """Return the releases that the fleet has installed or adopted on a cluster."""
        ...

    async def reading(
        self, connection: Connection, cluster_id: uuid.UUID, release: ReleaseRef
    ) -> StoredReading | None:
        """Return the last reading of a release."""
        ...

    async def put_reading(
        self, connection: Connection, cluster_id: uuid.UUID, release: ReleaseRef, reading: StoredReading
    ) -> None:
        """Store a reading in place of the one before. A cluster that is deleted meanwhile keeps none."""
        ...

    async def baseline(
        self, connection: Connection, cluster_id: uuid.UUID, operator_id: uuid.UUID
    ) -> ResourceBaseline | None:
        """Return the baseline of the active deployment of an operator on a cluster; None if there is none."""
        ...

    async def put_baseline(
        self,
        connection: Connection,
        cluster_id: uuid.UUID,
        operator_id: uuid.UUID,
        baseline: ResourceBaseline,
    ) -> None:
        """Store a baseline in place of the one before."""
        ...

    async def claim_sweeps(
        self, connection: Connection, *, interval: timedelta, limit: int, at_work: Sequence[uuid.UUID] = ()
    ) -> Sequence[SweepClaim]:
        """Claim clusters whose sweep is due. No other replica gets them before the next one is due.

        Those at work are left out.
        """
        ...

    async def next_sweep(self, connection: Connection) -> datetime | None:
        """Return the time of the next sweep."""
        ...

    async def finish_sweep(self, connection: Connection, claim: SweepClaim) -> bool:
        """Forget readings of releases that are gone. Return False if a later sweep was claimed meanwhile."""
        ...


class ClusterHealthSweeper(Protocol):
    """One sweep of one cluster."""

    async def sweep(self, cluster_id: uuid.UUID) -> int:
        """Read and store the health of all operators on a cluster, and return their number.

        Raises `ClusterUnreachable` or `ClusterGone`.
        """
        ...

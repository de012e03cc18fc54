"""Sources of a plan: registered operators and clusters, their values, rendered charts, and preflights."""

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import CrdChange, FieldConflict, LiveVerdict, PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = [
    "ChartRenderRequest",
    "ClusterInspector",
    "FleetRegistry",
    "InspectionRequest",
    "KubernetesUnsupported",
    "LayeredValues",
    "PreflightReport",
    "ReleaseRenderer",
    "ValueLayers",
]


class FleetRegistry(Protocol):
    """Registered operators and clusters, in the caller's transaction."""

    async def operator(self, connection: Connection, name: str) -> ManagedOperator | None:
        """Return an operator by its name."""
        ...

    async def version(
        self, connection: Connection, operator_id: uuid.UUID, version: str
    ) -> OperatorVersion | None:
        """Return a version of an operator."""
        ...

    async def clusters(self, connection: Connection) -> list[ManagedCluster]:
        """Return all clusters."""
        ...

    async def cluster(self, connection: Connection, cluster_id: uuid.UUID) -> ManagedCluster | None:
        """Return a cluster by its id; None once it is deleted."""
        ...

    async def withdraw(
        self, connection: Connection, operator_id: uuid.UUID, version: str, reason: str
    ) -> None:
        """Mark a version as bad, so that nothing deploys it again without an override."""
        ...


class LayeredValues(msgspec.Struct, frozen=True):
    """The values of an operator on a cluster, before those of a deployment."""

    layers: tuple[Mapping[str, Any], ...]
    """Operator, environment, cluster: later ones win."""
    secret_paths: frozenset[tuple[str, ...]] = frozenset()


class ValueLayers(Protocol):
    """A source of values, secret ones opened."""

    async def layers(self, operator: ManagedOperator, cluster: ManagedCluster) -> LayeredValues:
        """Return the values of an operator on a cluster."""
        ...


class ChartRenderRequest(msgspec.Struct, frozen=True):
    """A chart to render for one cluster."""

    chart_digest: str
    release: ReleaseRef
    values: dict[str, Any]
    kubernetes_version: str
    suffix_names: bool = False
    """Blue-green: suffix cluster-scoped names, so that two releases fit next to each other, and render them at rest:
    controllers with zero replicas, webhooks that match nothing."""
    cluster_id: uuid.UUID | None = None
    """The cluster whose APIs the chart sees; None for the built-in ones."""


class KubernetesUnsupported(InvalidInput):
    """A chart that declares that it does not run on the version of a cluster."""


class ReleaseRenderer(Protocol):
    """A renderer of charts that are kept by digest."""

    async def render(self, request: ChartRenderRequest) -> bytes:
        """Return the manifest.

        Raises `InvalidInput` if the chart does not render with these values, and `KubernetesUnsupported` if it does
        not run on this version of Kubernetes.
        """
        ...


class InspectionRequest(msgspec.Struct, frozen=True):
    """A manifest to try on a cluster without changing it."""

    cluster: ManagedCluster
    operator: ManagedOperator
    version: OperatorVersion
    live: ReleaseRef
    next: ReleaseRef
    manifest: bytes
    on_conflict: ConflictPolicy
    values: Mapping[str, Any] = {}
    secret_paths: frozenset[tuple[str, ...]] = frozenset()

    def __repr__(self) -> str:
        return f"InspectionRequest({self.next} on {self.cluster.name})"


class PreflightReport(msgspec.Struct, frozen=True):
    """The answer of a cluster to a manifest."""

    present_revision: int
    present_version: str = ""
    crds: tuple[CrdChange, ...] = ()
    verdicts: tuple[LiveVerdict, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    problems: tuple[PreflightProblem, ...] = ()
    diff: str = ""
    notices: tuple[str, ...] = ()
    manifest: bytes | None = None
    """The manifest to apply, if it is another one: without the fields that are left to their owners."""
    additions: tuple[FieldConflict, ...] = ()
    """The fields that other managers have added to pod templates."""


class ClusterInspector(Protocol):
    """A maker of preflight reports."""

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        """Try a manifest on a cluster. Raises `ClusterUnreachable` if it does not answer."""
        ...

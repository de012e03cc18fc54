"""Requests for deployments, and what the API shows of one."""

import enum
import uuid
from datetime import datetime
from typing import Annotated, Any

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.domain.rollout.approvals import RequiredApproval
from kapsa.fleet.domain.rollout.deployments import (
    ConflictPolicy,
    DeploymentPhase,
    OfflinePolicy,
    VersionDeployment,
)
from kapsa.fleet.domain.rollout.plans import RolloutPlan
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
    RolloutStrategy,
)
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState, TargetStep
from kapsa.fleet.orchestrator.hidden_texts import HiddenTexts, seal_sensitive, secret_texts

__all__ = [
    "ClusterSelector",
    "DeploymentDetails",
    "DeploymentRequest",
    "PlanDetails",
    "RollbackStatus",
    "StrategyName",
    "TargetStatus",
    "chosen_strategy",
    "requested_deployment",
    "requested_target",
    "sealed_request",
    "select_clusters",
    "target_status",
]

Reason = Annotated[str, msgspec.Meta(max_length=1000)]


class StrategyName(enum.StrEnum):
    """The strategies by name."""

    CANARY = "Canary"
    BLUE_GREEN = "BlueGreen"
    ROLLING = "Rolling"
    DIRECT = "Direct"


class ClusterSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The clusters that a deployment is for. What is given must all hold."""

    clusters: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    """Names. Each must exist."""
    environment: ClusterEnvironment | None = None
    labels: dict[str, str] = {}


class DeploymentRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to bring a version of an operator to clusters."""

    operator: str
    version: str
    targets: ClusterSelector
    strategy: StrategyName
    canary_config: CanaryStrategy | None = None
    blue_green_config: BlueGreenStrategy | None = None
    rolling_config: RollingStrategy | None = None
    direct_config: DirectStrategy | None = None
    values: dict[str, Any] = {}
    """Plain values. One that shows a secret value in any form, or looks like a secret, is sealed as those are."""
    secret_values: dict[str, Any] = {}
    """Values that are sealed, and masked wherever values are shown. They win over `values`."""
    on_conflict: ConflictPolicy = ConflictPolicy.FAIL
    on_offline: OfflinePolicy = OfflinePolicy.WAIT
    force_reason: Reason = ""
    """Admins: deploy a withdrawn version, or use Direct in production, for this reason."""
    window_override_reason: Reason = ""
    """Admins: set maintenance windows and freezes aside, for this reason."""


class TargetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster of a deployment, for people."""

    cluster: str
    environment: ClusterEnvironment
    stage: int
    state: TargetState
    step: TargetStep
    attempt: int
    revision: int
    previous_revision: int | None
    previous_version: str
    waits_for: str
    deadline: datetime | None
    reason: str
    message: str
    healthy_since: datetime | None
    failed_checks: int
    hand_over_gap_seconds: float | None
    gate: GateProgress = GateProgress()
    """The evidence that the gate has so far."""


class DeploymentDetails(msgspec.Struct, frozen=True, rename="camel"):
    """A deployment with its clusters."""

    deployment: VersionDeployment
    clusters: tuple[TargetStatus, ...]


class PlanDetails(msgspec.Struct, frozen=True, rename="camel"):
    """A plan, its digest, and the approvals that it needs."""

    digest: str
    plan: RolloutPlan
    required_approvals: tuple[RequiredApproval, ...]


class RollbackStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a rollback."""

    deployment_id: uuid.UUID
    phase: DeploymentPhase
    reason: str
    started_at: datetime | None
    finished_at: datetime | None
    clusters: tuple[TargetStatus, ...]


def sealed_request(request: DeploymentRequest, operator_secrets: dict[str, Any]) -> DeploymentRequest:
    """Return the request with each plain value that shows a secret in any form among the secret ones.

    Anybody who may read deployments sees the plain values.
    """
    hidden = HiddenTexts([*secret_texts(operator_secrets), *secret_texts(request.secret_values)])
    values, sealed = seal_sensitive(request.values, request.secret_values, hidden)
    return msgspec.structs.replace(request, values=values, secret_values=sealed)


def chosen_strategy(request: DeploymentRequest) -> RolloutStrategy:
    """Return the strategy with its settings. Raises `InvalidInput` if the settings of another one are given."""
    given: dict[StrategyName, tuple[str, RolloutStrategy | None]] = {
        StrategyName.CANARY: ("canaryConfig", request.canary_config),
        StrategyName.BLUE_GREEN: ("blueGreenConfig", request.blue_green_config),
        StrategyName.ROLLING: ("rollingConfig", request.rolling_config),
        StrategyName.DIRECT: ("directConfig", request.direct_config),
    }
    _, config = given.pop(request.strategy)
    for field, other in given.values():
        if other is not None:
            message = f"has no effect with strategy {request.strategy}: leave it out"
            raise InvalidInput(f"{field} {message}", InvalidField(f"/{field}", message))
    return config or _default(request.strategy)


def _default(name: StrategyName) -> RolloutStrategy:
    match name:
        case StrategyName.CANARY:
            return CanaryStrategy()
        case StrategyName.ROLLING:
            return RollingStrategy()
        case StrategyName.DIRECT:
            return DirectStrategy()
        case StrategyName.BLUE_GREEN:
            message = "is needed with strategy BlueGreen: it names the two namespaces"
            raise InvalidInput(f"blueGreenConfig {message}", InvalidField("/blueGreenConfig", message))


def select_clusters(selector: ClusterSelector, clusters: list[ManagedCluster]) -> list[ManagedCluster]:
    """Return the clusters that a selector chooses. Raises `InvalidInput` if there are none, or a name is unknown."""
    names = {cluster.name for cluster in clusters}
    unknown = [name for name in selector.clusters if name not in names]
    if unknown:
        message = f"no cluster is named {unknown[0]!r}"
        raise InvalidInput(message, InvalidField("/targets/clusters", message))
    if not (selector.clusters or selector.environment or selector.labels):
        message = "must name clusters, an environment or labels"
        raise InvalidInput(f"targets {message}", InvalidField("/targets", message))
    chosen = [cluster for cluster in clusters if _selected(selector, cluster)]
    if not chosen:
        message = "no registered cluster matches"
        raise InvalidInput(message, InvalidField("/targets", message))
    return chosen


def _selected(selector: ClusterSelector, cluster: ManagedCluster) -> bool:
    return (
        (not selector.clusters or cluster.name in selector.clusters)
        and selector.environment in (None, cluster.environment)
        and all(cluster.labels.get(key) == value for key, value in selector.labels.items())
    )


def target_status(target: RolloutTarget) -> TargetStatus:
    """Return a cluster of a deployment as people see it."""
    return TargetStatus(
        cluster=target.cluster_name,
        environment=target.environment,
        stage=target.stage,
        state=target.state,
        step=target.step,
        attempt=target.attempt,
        revision=target.revision,
        previous_revision=target.base_revision,
        previous_version=target.base_version,
        waits_for=target.stalled or target.waits_for,
        deadline=target.deadline,
        reason=target.reason,
        message=target.message,
        healthy_since=target.progress.healthy_since,
        failed_checks=target.progress.failed_in_a_row,
        hand_over_gap_seconds=target.gap_seconds,
        gate=target.progress,
    )


def requested_deployment(
    deployment_id: uuid.UUID,
    request: DeploymentRequest,
    operator: ManagedOperator,
    version: OperatorVersion,
    strategy: RolloutStrategy,
    requested_by: str,
    now: datetime,
    trace_parent: str,
) -> VersionDeployment:
    """Return a new deployment for a request that was found to be valid."""
    return VersionDeployment(
        id=deployment_id,
        operator_id=operator.id,
        operator_name=operator.name,
        version=version.version,
        strategy=strategy,
        values=request.values,
        phase=DeploymentPhase.PLANNING,
        requested_by=requested_by,
        created_at=now,
        on_conflict=request.on_conflict,
        on_offline=request.on_offline,
        chart_digest=version.chart_digest,
        force_reason=request.force_reason,
        forced_withdrawal=version.withdrawn_reason,
        window_override_reason=request.window_override_reason,
        trace_parent=trace_parent,
    )


def requested_target(
    deployment: VersionDeployment, operator: ManagedOperator, cluster: ManagedCluster
) -> RolloutTarget:
    """Return a cluster of a new deployment, before its plan."""
    release = ReleaseRef(operator.name, operator.namespace)
    return RolloutTarget(
        deployment_id=deployment.id,
        operator_id=operator.id,
        cluster_id=cluster.id,
        cluster_name=cluster.name,
        environment=cluster.environment,
        live=release,
        next=release,
    )

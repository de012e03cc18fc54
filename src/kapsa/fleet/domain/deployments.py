"""Deployments: one version of an operator on its way to a list of clusters."""

import enum
import uuid
from datetime import datetime
from typing import Any

import msgspec

from kapsa.fleet.domain.strategies import RolloutStrategy

__all__ = [
    "ACTIVE_PHASES",
    "ConflictPolicy",
    "DeploymentPhase",
    "OfflinePolicy",
    "RolloutTarget",
    "TargetState",
    "VersionDeployment",
]


class DeploymentPhase(enum.StrEnum):
    """The phase of a whole deployment."""

    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    DEPLOYING = "Deploying"
    VALIDATING = "Validating"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    ABORTED = "Aborted"
    REJECTED = "Rejected"
    FAILED = "Failed"


ACTIVE_PHASES = frozenset(
    {
        DeploymentPhase.PLANNING,
        DeploymentPhase.AWAITING_APPROVAL,
        DeploymentPhase.DEPLOYING,
        DeploymentPhase.VALIDATING,
        DeploymentPhase.PAUSED,
        DeploymentPhase.ROLLING_BACK,
    }
)
"""Phases in which a deployment still holds its clusters."""


class TargetState(enum.StrEnum):
    """The state of one cluster of a deployment."""

    PENDING = "Pending"
    """Its stage has not begun."""
    APPLYING = "Applying"
    """An intent is recorded; CRDs and the chart are being applied."""
    VALIDATING = "Validating"
    """The new revision is there; health is observed and the soak is counted."""
    HEALTHY = "Healthy"
    """The gate has passed."""
    SKIPPED = "Skipped"
    """Left out by policy: the cluster was unreachable or deleted."""
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    FAILED = "Failed"


class ConflictPolicy(enum.StrEnum):
    """The answer to a field that another field manager owns."""

    FAIL = "fail"
    TAKE = "take"
    LEAVE = "leave"


class OfflinePolicy(enum.StrEnum):
    """The answer to a cluster that is unreachable when its turn comes."""

    WAIT = "wait"
    SKIP = "skip"


class VersionDeployment(msgspec.Struct, frozen=True, rename="camel"):
    """A request to bring a version of an operator to clusters, and how far it is."""

    id: uuid.UUID
    operator_id: uuid.UUID
    operator_name: str
    version: str
    strategy: RolloutStrategy
    values: dict[str, Any]
    phase: DeploymentPhase
    requested_by: str
    created_at: datetime
    on_conflict: ConflictPolicy = ConflictPolicy.FAIL
    on_offline: OfflinePolicy = OfflinePolicy.WAIT
    phase_before_pause: DeploymentPhase | None = None
    waits_for: str = ""
    """One sentence: what the deployment waits for. Empty when it is at work or finished."""
    deadline: datetime | None = None
    """The time at which the present wait gives up."""
    plan_digest: str = ""
    force_reason: str = ""
    """The reason an admin gave for forcing something that the rules refuse."""
    generation: int = 1
    finished_at: datetime | None = None


class RolloutTarget(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster of a deployment: a row that the engine claims."""

    deployment_id: uuid.UUID
    cluster_id: uuid.UUID
    cluster_name: str
    stage: int
    state: TargetState
    attempt: int = 1
    intended_revision: int = 0
    """The Helm revision that the recorded intent makes; 0 before the first intent."""
    previous_revision: int = 0
    """The revision that a rollback returns to; 0 means that the rollback uninstalls."""
    healthy_since: datetime | None = None
    """The first healthy check of the new revision: the soak counts from here."""
    failed_checks: int = 0
    """Failed checks in a row."""
    reason: str = ""
    message: str = ""

"""Deployments: one version of an operator on its way to a list of clusters, and the phases that it goes through."""

import enum
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

import msgspec

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.rollout.strategies import RolloutStage, RolloutStrategy

__all__ = [
    "ACTIVE_PHASES",
    "PHASE_TRANSITIONS",
    "RUNNING_PHASES",
    "ConflictPolicy",
    "DeploymentPhase",
    "OfflinePolicy",
    "RolloutEvent",
    "VersionDeployment",
    "check_phase",
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


_Phase = DeploymentPhase

ACTIVE_PHASES = frozenset(
    {
        _Phase.PLANNING,
        _Phase.AWAITING_APPROVAL,
        _Phase.DEPLOYING,
        _Phase.VALIDATING,
        _Phase.PAUSED,
        _Phase.ROLLING_BACK,
    }
)
"""Phases in which a deployment still holds its clusters."""

RUNNING_PHASES = frozenset({_Phase.DEPLOYING, _Phase.VALIDATING, _Phase.PAUSED, _Phase.ROLLING_BACK})
"""Phases that count against `maxConcurrentDeployments`."""

PHASE_TRANSITIONS: Mapping[DeploymentPhase, frozenset[DeploymentPhase]] = {
    _Phase.PLANNING: frozenset({_Phase.AWAITING_APPROVAL, _Phase.DEPLOYING, _Phase.FAILED, _Phase.ABORTED}),
    _Phase.AWAITING_APPROVAL: frozenset({_Phase.PLANNING, _Phase.REJECTED, _Phase.ABORTED, _Phase.FAILED}),
    _Phase.DEPLOYING: frozenset(
        {_Phase.VALIDATING, _Phase.COMPLETED, _Phase.PAUSED, _Phase.ROLLING_BACK, _Phase.ABORTED}
    ),
    _Phase.VALIDATING: frozenset(
        {_Phase.DEPLOYING, _Phase.COMPLETED, _Phase.PAUSED, _Phase.ROLLING_BACK, _Phase.ABORTED}
    ),
    _Phase.PAUSED: frozenset(
        {_Phase.DEPLOYING, _Phase.VALIDATING, _Phase.ROLLING_BACK, _Phase.ABORTED, _Phase.PLANNING}
    ),
    _Phase.ROLLING_BACK: frozenset({_Phase.ROLLED_BACK, _Phase.FAILED}),
    _Phase.COMPLETED: frozenset({_Phase.ROLLING_BACK}),
    _Phase.ABORTED: frozenset({_Phase.ROLLING_BACK, _Phase.PLANNING}),
    _Phase.FAILED: frozenset({_Phase.ROLLING_BACK, _Phase.PLANNING}),
    _Phase.ROLLED_BACK: frozenset({_Phase.PLANNING}),
    _Phase.REJECTED: frozenset(),
}
"""The phases that may follow each phase. Nothing follows a rejection."""


def check_phase(before: DeploymentPhase, after: DeploymentPhase) -> None:
    """Raise `StateConflict` unless a deployment may go from one phase to the other. Staying is always legal."""
    if before is not after and after not in PHASE_TRANSITIONS[before]:
        raise StateConflict(f"a deployment that is {before} cannot become {after}")


class ConflictPolicy(enum.StrEnum):
    """The answer to a field that another field manager owns."""

    FAIL = "fail"
    TAKE = "take"
    LEAVE = "leave"


class OfflinePolicy(enum.StrEnum):
    """The answer to a cluster that is unreachable when its turn comes. Either way the others go on."""

    WAIT = "wait"
    """Change it late, if it comes back before the deadline."""
    SKIP = "skip"


class RolloutEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of a deployment's history."""

    kind: str
    """A stable word: `PhaseChanged`, `StepChanged`, `Approved`."""
    message: str
    cluster: str = ""
    """Empty if the entry is about the whole deployment."""
    actor: str = ""
    """Empty if the engine acted by itself."""
    sequence: int = 0
    """Assigned when it is stored; `Last-Event-ID` of the stream."""
    at: datetime | None = None


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
    chart_digest: str = ""
    attempt: int = 1
    """Incremented by each retry."""
    retried_by: tuple[str, ...] = ()
    """Everybody who asked for another attempt: they count as requesters."""
    plan_digest: str = ""
    stages: tuple[RolloutStage, ...] = ()
    """The stages of the plan that runs. The list of clusters is frozen with it."""
    stage: int = 0
    """The number of stages that have passed."""
    stage_passed_at: datetime | None = None
    switch_requested: bool = False
    abort_requested: bool = False
    waits_for: str = ""
    """One clause: what the deployment waits for. Empty when it is at work or finished."""
    deadline: datetime | None = None
    """The end of the present wait: it is over then, or gives up."""
    queued_since: datetime | None = None
    """The start of the present wait for its turn: for other deployments to end. None in any other wait."""
    message: str = ""
    """The cause if the deployment is paused, failed or rolled back."""
    force_reason: str = ""
    """An admin's reason to force what the rules refuse: Direct in production, or a withdrawn version."""
    forced_withdrawal: str = ""
    """The withdrawal of the version that the force of this attempt sets aside. It sets aside no later one."""
    window_override_reason: str = ""
    """An admin's reason to set maintenance windows and freezes aside."""
    trace_parent: str = ""
    """The W3C `traceparent` of the request: the spans of the deployment continue that trace. Empty without one."""
    started_at: datetime | None = None
    rollback_started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def active(self) -> bool:
        """True while the deployment holds its clusters."""
        return self.phase in ACTIVE_PHASES

    def ended(self, phase: DeploymentPhase, now: datetime, message: str) -> Self:
        """Return the deployment in a final phase, in which it waits for nothing."""
        return msgspec.structs.replace(
            self,
            phase=phase,
            message=message,
            waits_for="",
            deadline=None,
            queued_since=None,
            finished_at=now,
        )

    def stopped_by(self, withdrawal: str) -> str:
        """Return the sentence that stops the deployment of a withdrawn version; empty unless it was withdrawn.

        A force sets aside the withdrawal that it was given for, and no later one.
        """
        if withdrawal in ("", self.forced_withdrawal):
            return ""
        return f"version {self.version} of {self.operator_name} is withdrawn: {withdrawal}"

    @property
    def trace_id(self) -> str:
        """The id of the trace that the deployment is part of: that of its request, or else one of its own."""
        return self.trace_parent.split("-")[1] if self.trace_parent else self.id.hex

    @property
    def requesters(self) -> frozenset[str]:
        """Everybody who asked for this deployment: none of them may approve it."""
        return frozenset({self.requested_by, *self.retried_by})

"""Approvals: who must agree to a plan, and when an agreement counts.

An approval is bound to a digest, expires, is used once, and is scoped to an environment. Nobody approves what
they requested, whatever roles they hold.
"""

import enum
import uuid
from datetime import datetime

import msgspec

from kapsa.fleet.domain.clusters import ClusterEnvironment
from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.plans import RolloutPlan
from kapsa.fleet.domain.principals import Principal, Role

__all__ = ["ApprovalKind", "ApprovalRequest", "ApprovalState", "check_decision", "required_approvals"]


class ApprovalKind(enum.StrEnum):
    """The reason why an approval is needed."""

    PRODUCTION = "ProductionDeployment"
    BREAKING_CRD = "BreakingCrdChange"
    VERSION_UPGRADE = "OperatorVersionUpgrade"


class ApprovalState(enum.StrEnum):
    """The state of an approval."""

    PENDING = "Pending"
    APPROVED = "Approved"
    REJECTED = "Rejected"
    EXPIRED = "Expired"
    VOID = "Void"
    """The plan changed after the request: its digest is another one."""
    USED = "Used"


class ApprovalRequest(msgspec.Struct, frozen=True, rename="camel"):
    """One agreement that a deployment needs."""

    id: uuid.UUID
    deployment_id: uuid.UUID
    kind: ApprovalKind
    environment: ClusterEnvironment
    digest: str
    requested_by: str
    created_at: datetime
    expires_at: datetime
    state: ApprovalState = ApprovalState.PENDING
    level: int = 1
    """Level 2 is asked after level 1 agreed; a person decides at one level only."""
    decided_by: str = ""
    decided_at: datetime | None = None
    comment: str = ""


def required_approvals(
    plan: RolloutPlan, *, levels: int = 1
) -> tuple[tuple[ApprovalKind, ClusterEnvironment, int], ...]:
    """Return the approvals that a plan needs: kind, environment and level, in the order of asking."""
    needed: set[tuple[ApprovalKind, ClusterEnvironment]] = set()
    for cluster in plan.clusters:
        if cluster.environment is ClusterEnvironment.PRODUCTION:
            needed.add((ApprovalKind.PRODUCTION, cluster.environment))
        if cluster.breaking or cluster.one_way:
            needed.add((ApprovalKind.BREAKING_CRD, cluster.environment))
    ordered = sorted(needed, key=lambda item: (item[1].rank, item[0].value))
    return tuple(
        (kind, environment, level) for level in range(1, levels + 1) for kind, environment in ordered
    )


def check_decision(request: ApprovalRequest, principal: Principal, digest: str, now: datetime) -> None:
    """Raise unless the principal may decide this request now.

    `digest` is the digest of the deployment's present plan: an agreement to another plan does not count.
    """
    if principal.subject == request.requested_by:
        raise NotAllowed("nobody may decide on a deployment that they requested")
    if request.kind is ApprovalKind.BREAKING_CRD and not principal.has(Role.ADMIN):
        raise NotAllowed("only an admin may decide on a breaking CRD change")
    if not principal.owns(request.environment):
        raise NotAllowed(f"only an admin or an owner of {request.environment} may decide")
    if request.state is not ApprovalState.PENDING:
        raise StateConflict(f"the approval is {request.state} and cannot be decided again")
    if now >= request.expires_at:
        raise StateConflict(f"the approval expired at {request.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    if digest != request.digest:
        raise StateConflict("the plan changed after this approval was requested: a new approval is needed")

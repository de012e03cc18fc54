"""Approvals: who must agree to a plan, and when an agreement counts.

An approval is bound to a digest, expires, is used once, and is scoped to an environment. Nobody approves what
they requested, whatever roles they hold.
"""

import enum
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.errors import NotAllowed, StateConflict
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.plans import ClusterPlan, RolloutPlan

__all__ = [
    "APPROVAL_TRANSITIONS",
    "ApprovalKind",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalState",
    "RequiredApproval",
    "check_decision",
    "decided",
    "granted",
    "outdated",
    "required_approvals",
]


class ApprovalKind(enum.StrEnum):
    """The reason why an approval is needed."""

    PRODUCTION = "ProductionDeployment"
    ENVIRONMENT = "EnvironmentDeployment"
    """A deployment to another environment that the policy protects."""
    BREAKING_CRD = "BreakingCrdChange"
    VERSION_UPGRADE = "OperatorVersionUpgrade"


class ApprovalState(enum.StrEnum):
    """The state of an approval."""

    PENDING = "Pending"
    APPROVED = "Approved"
    REJECTED = "Rejected"
    EXPIRED = "Expired"
    VOID = "Void"
    """The plan changed after the request, or the deployment ended before it was decided."""
    USED = "Used"


APPROVAL_TRANSITIONS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    ApprovalState.PENDING: frozenset(
        {ApprovalState.APPROVED, ApprovalState.REJECTED, ApprovalState.EXPIRED, ApprovalState.VOID}
    ),
    ApprovalState.APPROVED: frozenset({ApprovalState.USED, ApprovalState.EXPIRED, ApprovalState.VOID}),
    ApprovalState.REJECTED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
    ApprovalState.VOID: frozenset(),
    ApprovalState.USED: frozenset(),
}
"""The states that may follow each state."""

_ADMIN_KINDS = frozenset({ApprovalKind.BREAKING_CRD, ApprovalKind.VERSION_UPGRADE})


class ApprovalPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """The approvals that an installation asks for."""

    levels: int = 1
    """Different people who must agree, one after the other."""
    environments: frozenset[ClusterEnvironment] = frozenset({ClusterEnvironment.PRODUCTION})
    """Ask for every deployment to these."""
    breaking_crds: bool = True
    """Ask for CRD changes that are breaking or one-way, in any environment."""
    version_upgrades: bool = False
    """Ask for every upgrade of an installed operator, in any environment."""
    lifetime: timedelta = timedelta(hours=24)


class RequiredApproval(msgspec.Struct, frozen=True, order=True):
    """One agreement that a plan needs."""

    level: int
    environment: ClusterEnvironment
    kind: ApprovalKind


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
    retried_by: tuple[str, ...] = ()
    decided_by: str = ""
    decided_at: datetime | None = None
    comment: str = ""

    @property
    def required(self) -> RequiredApproval:
        """The agreement that it stands for."""
        return RequiredApproval(self.level, self.environment, self.kind)


def required_approvals(plan: RolloutPlan, policy: ApprovalPolicy) -> tuple[RequiredApproval, ...]:
    """Return the approvals that a plan needs, in the order of asking."""
    needed = {
        (kind, cluster.environment)
        for cluster in plan.clusters
        for kind in _kinds(cluster, plan.version, policy)
    }
    ordered = sorted(needed, key=lambda item: (item[1].rank, item[0].value))
    return tuple(
        RequiredApproval(level, environment, kind)
        for level in range(1, policy.levels + 1)
        for kind, environment in ordered
    )


def _kinds(cluster: ClusterPlan, version: str, policy: ApprovalPolicy) -> Iterable[ApprovalKind]:
    if cluster.environment in policy.environments:
        production = cluster.environment is ClusterEnvironment.PRODUCTION
        yield ApprovalKind.PRODUCTION if production else ApprovalKind.ENVIRONMENT
    if policy.breaking_crds and (cluster.breaking or cluster.one_way):
        yield ApprovalKind.BREAKING_CRD
    if policy.version_upgrades and cluster.present_revision and cluster.present_version != version:
        yield ApprovalKind.VERSION_UPGRADE


def check_decision(
    request: ApprovalRequest,
    principal: Principal,
    *,
    digest: str,
    others: Iterable[ApprovalRequest] = (),
    now: datetime,
) -> None:
    """Raise unless the principal may decide this request now.

    `digest` is the digest of the deployment's present plan: an agreement to another plan does not count. `others`
    are the other requests of the deployment: a level waits for the one before it, and each needs another person.
    """
    _check_person(request, principal)
    if request.state is not ApprovalState.PENDING:
        raise StateConflict(f"the approval is {request.state} and cannot be decided again")
    if now >= request.expires_at:
        raise StateConflict(f"the approval expired at {request.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    if digest != request.digest:
        raise StateConflict("the plan changed after this approval was requested: a new approval is needed")
    same_plan = [other for other in others if other.digest == digest and other.id != request.id]
    _check_levels(request, principal, same_plan)


def _check_person(request: ApprovalRequest, principal: Principal) -> None:
    if principal.subject in {request.requested_by, *request.retried_by}:
        raise NotAllowed("nobody may decide on a deployment that they requested")
    if request.kind in _ADMIN_KINDS and not principal.has(Role.ADMIN):
        raise NotAllowed(f"only an admin may decide on {request.kind}")
    if not principal.owns(request.environment):
        raise NotAllowed(f"only an admin or an owner of {request.environment} may decide")


def _check_levels(request: ApprovalRequest, principal: Principal, others: Iterable[ApprovalRequest]) -> None:
    for other in others:
        if other.level < request.level and other.state is not ApprovalState.APPROVED:
            raise StateConflict(f"level {other.level} must be approved before level {request.level}")
        if other.level != request.level and other.decided_by == principal.subject:
            raise NotAllowed(
                f"{principal.subject} has decided at level {other.level}: another person must decide"
            )


def decided(
    request: ApprovalRequest, state: ApprovalState, now: datetime, *, by: str = "", comment: str = ""
) -> ApprovalRequest:
    """Return the request in a new state. Raises `StateConflict` if that state cannot follow."""
    if state not in APPROVAL_TRANSITIONS[request.state]:
        raise StateConflict(f"an approval that is {request.state} cannot become {state}")
    changes: dict[str, object] = {"state": state}
    if by:
        changes |= {"decided_by": by, "decided_at": now, "comment": comment}
    return msgspec.structs.replace(request, **changes)


def granted(
    required: Iterable[RequiredApproval], requests: Iterable[ApprovalRequest], *, digest: str, now: datetime
) -> bool:
    """Return whether each required approval was given, for this very plan, and has not expired."""
    given = {
        request.required
        for request in requests
        if request.state is ApprovalState.APPROVED and request.digest == digest and now < request.expires_at
    }
    return given.issuperset(required)


def outdated(request: ApprovalRequest, *, digest: str, now: datetime) -> ApprovalState | None:
    """Return the state that an open request falls into by itself: expired, void, or None if it still stands."""
    if request.state not in (ApprovalState.PENDING, ApprovalState.APPROVED):
        return None
    if request.digest != digest:
        return ApprovalState.VOID
    return ApprovalState.EXPIRED if now >= request.expires_at else None

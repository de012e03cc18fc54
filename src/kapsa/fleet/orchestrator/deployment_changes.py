"""The changes that a person may ask of a deployment, as decisions: pure, and checked against its phase."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kapsa.fleet.domain.errors import StateConflict
from kapsa.fleet.domain.health import GateProgress, accept
from kapsa.fleet.domain.rollout.course import RESUME
from kapsa.fleet.domain.rollout.deployments import (
    PHASE_TRANSITIONS,
    DeploymentPhase,
    VersionDeployment,
    check_phase,
)
from kapsa.fleet.domain.rollout.strategies import BlueGreenStrategy
from kapsa.fleet.domain.rollout.targets import DELETED, RolloutTarget, TargetGoal, TargetState, TargetStep

__all__ = ["DeploymentChange", "abort", "pause", "resume", "retry", "roll_back", "switch"]

Struct = TypeVar("Struct", bound=msgspec.Struct)

_FORWARD = frozenset({DeploymentPhase.DEPLOYING, DeploymentPhase.VALIDATING, DeploymentPhase.PAUSED})
_BEFORE = frozenset({DeploymentPhase.PLANNING, DeploymentPhase.AWAITING_APPROVAL})
_BUSY = frozenset({TargetState.APPLYING, TargetState.VALIDATING, TargetState.ROLLING_BACK})


class DeploymentChange(msgspec.Struct, frozen=True):
    """A change that is asked for: the deployment, and clusters whose rows change with it."""

    deployment: VersionDeployment
    kind: str
    message: str
    reset: tuple[RolloutTarget, ...] = ()
    """Clusters that begin again from another step."""
    due: tuple[RolloutTarget, ...] = ()
    """Clusters that are looked at now."""


def abort(deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime) -> DeploymentChange:
    """End a deployment where it is."""
    if deployment.phase in _BEFORE:
        ended = deployment.ended(DeploymentPhase.ABORTED, now, deployment.message)
        skipped = tuple(_ended(target) for target in targets if target.state is TargetState.PENDING)
        return DeploymentChange(ended, "Aborted", "aborted before it began", skipped)
    if deployment.phase not in _FORWARD:
        raise StateConflict(f"a deployment that is {deployment.phase} cannot be aborted")
    return DeploymentChange(_replace(deployment, abort_requested=True), "AbortRequested", "abort requested")


def _ended(target: RolloutTarget) -> RolloutTarget:
    step = TargetStep.ABORTED if target.changed else TargetStep.SKIPPED
    return _replace(target, step=step, goal=TargetGoal.HOLD, reason="Aborted", next_run_at=None)


def pause(deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime) -> DeploymentChange:
    """Hold back the clusters that have not begun."""
    if deployment.phase not in (DeploymentPhase.DEPLOYING, DeploymentPhase.VALIDATING):
        raise StateConflict(f"a deployment that is {deployment.phase} cannot be paused")
    held = tuple(_held(target) for target in targets if target.step is TargetStep.PREPARE)
    paused = _replace(deployment, phase=DeploymentPhase.PAUSED, waits_for=RESUME, deadline=None)
    return DeploymentChange(paused, "Paused", "paused", held)


def _held(target: RolloutTarget) -> RolloutTarget:
    return _replace(
        target,
        step=TargetStep.WAIT,
        goal=TargetGoal.HOLD,
        next_run_at=None,
        offline_since=None,
        waits_for="",
        deadline=None,
        retry_until=None,
        stalled="",
    )


def resume(deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime) -> DeploymentChange:
    """Continue, and give every wait that gave up another chance."""
    if deployment.phase is not DeploymentPhase.PAUSED:
        raise StateConflict(f"a deployment that is {deployment.phase} cannot be resumed")
    if deployment.abort_requested:
        raise StateConflict("the deployment is being aborted")
    resumed = _replace(deployment, phase=DeploymentPhase.DEPLOYING, waits_for="", deadline=None, message="")
    again = tuple(_again(target, now) for target in targets if target.stalled)
    return DeploymentChange(resumed, "Resumed", "resumed", again)


def _again(target: RolloutTarget, now: datetime) -> RolloutTarget:
    if target.step is TargetStep.PREPARE:
        return _replace(_held(target), reason="", message="")
    progress = accept(target.progress, target.reason)
    cleared = {"stalled": "", "reason": "", "message": "", "waits_for": "", "deadline": None}
    return _replace(target, **cleared, retry_until=None, progress=progress, next_run_at=now)


def retry(
    deployment: VersionDeployment,
    targets: list[RolloutTarget],
    now: datetime,
    *,
    by: str,
    force_reason: str,
    forced_withdrawal: str,
) -> DeploymentChange:
    """Begin another attempt on the clusters that are not finished. A withdrawal is forced for one attempt."""
    if deployment.phase in _BEFORE:
        raise StateConflict(f"a deployment that is {deployment.phase} has nothing to retry")
    if DeploymentPhase.PLANNING not in PHASE_TRANSITIONS[deployment.phase]:
        raise StateConflict(
            f"a deployment that is {deployment.phase} cannot be retried: {_instead(deployment.phase)}"
        )
    for target in targets:
        if target.state in _BUSY:
            message = f"{target.cluster_name} is {target.state}: resume the deployment, or roll it back"
            raise StateConflict(message)
        if target.handed_over and target.state in (TargetState.ABORTED, TargetState.FAILED):
            message = f"{target.cluster_name} has switched to the new release: roll the deployment back"
            raise StateConflict(message)
    attempt = deployment.attempt + 1
    planned = _replace(
        deployment,
        phase=DeploymentPhase.PLANNING,
        attempt=attempt,
        retried_by=(*deployment.retried_by, by),
        force_reason=force_reason or deployment.force_reason,
        forced_withdrawal=forced_withdrawal,
        plan_digest="",
        abort_requested=False,
        switch_requested=False,
        message="",
        waits_for="",
        deadline=None,
        queued_since=None,
        finished_at=None,
    )
    reset = tuple(_reattempted(target, attempt) for target in targets)
    return DeploymentChange(planned, "Retried", f"attempt {attempt}", reset)


def _instead(phase: DeploymentPhase) -> str:
    match phase:
        case DeploymentPhase.ROLLING_BACK:
            return "wait until the rollback has ended"
        case DeploymentPhase.DEPLOYING | DeploymentPhase.VALIDATING:
            return "it is under way; abort it first, or roll it back"
        case _:
            return "request a new deployment"


def _reattempted(target: RolloutTarget, attempt: int) -> RolloutTarget:
    """Return a cluster at the start of another attempt; a finished one stays as it is, in no stage."""
    if target.state is TargetState.HEALTHY:
        return _replace(target, stage=0)
    changes: dict[str, Any] = {"base_revision": None, "base_digest": "", "base_version": "", "revision": 0}
    if target.changed and target.state is not TargetState.ROLLED_BACK:
        changes = {}  # an earlier attempt left its revision here: a rollback goes back beyond it
    return _replace(
        _held(target),
        attempt=attempt,
        progress=GateProgress(),
        handed_over=False,
        stopped_at=None,
        gap_seconds=None,
        reason="",
        message="",
        left_behind=(),
        **changes,
    )


def switch(deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime) -> DeploymentChange:
    """Let blue-green hand over."""
    if not isinstance(deployment.strategy, BlueGreenStrategy):
        raise StateConflict("only a BlueGreen deployment can be switched")
    if deployment.phase not in (DeploymentPhase.DEPLOYING, DeploymentPhase.VALIDATING):
        raise StateConflict(f"a deployment that is {deployment.phase} cannot be switched")
    due = tuple(target for target in targets if target.step is TargetStep.AWAIT_SWITCH)
    return DeploymentChange(
        _replace(deployment, switch_requested=True), "SwitchRequested", "switch requested", due=due
    )


def roll_back(
    deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime, *, reason: str
) -> DeploymentChange:
    """Return every changed cluster to the version before."""
    if deployment.phase is DeploymentPhase.ROLLING_BACK:
        raise StateConflict("the deployment is being rolled back already")
    check_phase(deployment.phase, DeploymentPhase.ROLLING_BACK)
    changed = [target for target in targets if target.changed and not _is_back(target)]
    if not changed:
        raise StateConflict("the deployment has changed no cluster: there is nothing to roll back")
    for target in changed:
        retired = target.step in (TargetStep.DONE, TargetStep.RETIRE_LIVE)
        if target.blue_green and target.base_revision and retired:
            message = (
                f"the release that ran before on {target.cluster_name} has been removed: "
                f"deploy version {target.base_version or 'before'} instead"
            )
            raise StateConflict(message)
    back = _replace(
        deployment,
        phase=DeploymentPhase.ROLLING_BACK,
        message=reason,
        rollback_started_at=now,
        finished_at=None,
        waits_for="",
        deadline=None,
    )
    failed = tuple(
        _replace(target, step=TargetStep.PREPARE_ROLLBACK, goal=TargetGoal.ROLL_BACK, next_run_at=now)
        for target in changed
        if target.step is TargetStep.ROLLBACK_FAILED
    )
    return DeploymentChange(back, "RollbackRequested", reason, failed)


def _is_back(target: RolloutTarget) -> bool:
    return target.state is TargetState.ROLLED_BACK or target.reason == DELETED


def _replace(value: Struct, **changes: Any) -> Struct:
    return msgspec.structs.replace(value, **changes)

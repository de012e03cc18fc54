"""The course of a rollout: what a deployment asks of each cluster, given what each cluster has reached.

Pure and level-triggered: it looks at the whole and decides from nothing else, so that it may run at any time, as
often as wanted and on any replica, and always decides the same.
"""

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import RolloutStage
from kapsa.fleet.domain.rollout.targets import DELETED, RolloutTarget, TargetGoal, TargetState, TargetStep

__all__ = ["RolloutCourse", "steer"]

Struct = TypeVar("Struct", bound=msgspec.Struct)

_SETTLED = frozenset({TargetState.HEALTHY, TargetState.SKIPPED})
_FORWARD = frozenset({DeploymentPhase.DEPLOYING, DeploymentPhase.VALIDATING, DeploymentPhase.PAUSED})
_ROLLBACK_ENDS = frozenset({TargetStep.ROLLED_BACK, TargetStep.ROLLBACK_FAILED})


class RolloutCourse(msgspec.Struct, frozen=True):
    """The decision: the deployment as it becomes, and the clusters whose goal or step changes."""

    deployment: VersionDeployment
    targets: dict[uuid.UUID, RolloutTarget] = {}
    """By cluster: only those that change."""
    next_run_at: datetime | None = None
    """The time to decide again if nothing happens before; None if only an event can change the decision."""


def steer(deployment: VersionDeployment, targets: Sequence[RolloutTarget], now: datetime) -> RolloutCourse:
    """Return what the deployment does next.

    Planning and approval are not decided here: they need more than the state of the clusters.
    """
    if deployment.phase is DeploymentPhase.ROLLING_BACK:
        return _steer_back(deployment, targets, now)
    if deployment.phase not in _FORWARD:
        return RolloutCourse(deployment)
    failed = [target for target in targets if target.step is TargetStep.FAILED]
    if failed:
        return _turn_back(deployment, targets, failed[0], now)
    if deployment.abort_requested:
        return _abort(deployment, targets, now)
    stalled = [target for target in targets if target.stalled]
    if deployment.phase is DeploymentPhase.PAUSED:
        return RolloutCourse(deployment)
    if stalled:
        message = f"{stalled[0].cluster_name}: {stalled[0].stalled}"
        return RolloutCourse(
            _replace(deployment, phase=DeploymentPhase.PAUSED, message=message, waits_for=RESUME)
        )
    return _forward(deployment, targets, now)


RESUME = "a person to resume, abort or roll back"


def _turn_back(
    deployment: VersionDeployment, targets: Sequence[RolloutTarget], cause: RolloutTarget, now: datetime
) -> RolloutCourse:
    message = f"{cause.cluster_name}: {cause.message or cause.reason}"
    turned = _replace(
        deployment,
        phase=DeploymentPhase.ROLLING_BACK,
        message=message,
        rollback_started_at=now,
        waits_for="",
        deadline=None,
    )
    return _steer_back(turned, targets, now)


def _steer_back(
    deployment: VersionDeployment, targets: Sequence[RolloutTarget], now: datetime
) -> RolloutCourse:
    unfinished = [target for target in targets if not _back(target)]
    if unfinished:
        changed = {
            target.cluster_id: _replace(target, goal=TargetGoal.ROLL_BACK, next_run_at=now, stalled="")
            for target in unfinished
            if target.goal is not TargetGoal.ROLL_BACK
        }
        waits_for = f"the rollback of {_names(unfinished)}"
        return RolloutCourse(_replace(deployment, waits_for=waits_for), changed)
    failed = [target for target in targets if target.step is TargetStep.ROLLBACK_FAILED]
    if failed:
        message = f"the rollback failed on {_names(failed)}: {failed[0].message}"
        return RolloutCourse(deployment.ended(DeploymentPhase.FAILED, now, message))
    return RolloutCourse(deployment.ended(DeploymentPhase.ROLLED_BACK, now, deployment.message))


def _back(target: RolloutTarget) -> bool:
    """Return whether a rollback has nothing more to do here. A skipped cluster may run what an earlier attempt made."""
    if target.step is TargetStep.SKIPPED:
        return not target.changed or target.reason == DELETED
    return target.step in _ROLLBACK_ENDS


def _abort(deployment: VersionDeployment, targets: Sequence[RolloutTarget], now: datetime) -> RolloutCourse:
    """Let acts that have begun end, unless they gave up, then leave every cluster as it is."""
    applying = [target for target in targets if target.state is TargetState.APPLYING]
    busy = [target for target in applying if not target.stalled]
    stuck = [target for target in applying if target.stalled]
    unfinished = [*stuck, *(target for target in targets if target.state in _OPEN)]
    changed = {target.cluster_id: _left(target) for target in unfinished}
    if busy:
        waits_for = f"the acts under way on {_names(busy)} to end"
        return RolloutCourse(_replace(deployment, waits_for=waits_for), changed)
    ended = {
        target.cluster_id: _end_watch(target, now) for target in targets if target.step is TargetStep.WATCH
    }
    finished = deployment.ended(DeploymentPhase.ABORTED, now, deployment.message)
    return RolloutCourse(finished, {**changed, **ended})


_OPEN = frozenset({TargetState.PENDING, TargetState.VALIDATING})


def _left(target: RolloutTarget) -> RolloutTarget:
    step = TargetStep.ABORTED if target.changed else TargetStep.SKIPPED
    return _replace(
        target,
        step=step,
        goal=TargetGoal.HOLD,
        next_run_at=None,
        reason="Aborted",
        waits_for="",
        deadline=None,
        retry_until=None,
        stalled="",
    )


def _forward(deployment: VersionDeployment, targets: Sequence[RolloutTarget], now: datetime) -> RolloutCourse:
    """Start the clusters whose turn it is, and end the deployment when all have settled."""
    passed, passed_at = deployment.stage, deployment.stage_passed_at
    held = [target for target in targets if target.stage <= passed and _waits(target)]
    if held:  # late when their stage passed, and held by a pause since: no stage starts them any more
        return RolloutCourse(deployment, {target.cluster_id: _started(target, now) for target in held}, now)
    for stage in deployment.stages[passed:]:
        if not all(target.state in _SETTLED or target.late for target in _of(stage, targets)):
            moved = _replace(deployment, stage=passed, stage_passed_at=passed_at)
            return _run_stage(moved, stage, targets, now)
        passed, passed_at = stage.number, now
    moved = _replace(deployment, stage=passed, stage_passed_at=passed_at)
    unsettled = [target for target in targets if target.state not in _SETTLED]
    if unsettled:
        return RolloutCourse(_await_late(moved, unsettled))
    ended = {
        target.cluster_id: _end_watch(target, now) for target in targets if target.step is TargetStep.WATCH
    }
    return RolloutCourse(moved.ended(DeploymentPhase.COMPLETED, now, ""), ended)


def _await_late(deployment: VersionDeployment, unsettled: Sequence[RolloutTarget]) -> VersionDeployment:
    """Return the deployment while it waits for clusters that were offline when their stage passed."""
    late = [target for target in unsettled if target.late]
    waits_for = f"{_names(late)} to come back online" if late else f"the health of {_names(unsettled)}"
    deadline = max((target.deadline for target in late if target.deadline), default=None)
    return _replace(deployment, phase=DeploymentPhase.VALIDATING, waits_for=waits_for, deadline=deadline)


def _run_stage(
    deployment: VersionDeployment, stage: RolloutStage, targets: Sequence[RolloutTarget], now: datetime
) -> RolloutCourse:
    begins = now
    if deployment.stage_passed_at is not None:
        begins = deployment.stage_passed_at + stage.pause_before
    if begins > now:
        waits_for = f"the pause before stage {stage.number}"
        phase = DeploymentPhase.VALIDATING
        waiting = _replace(deployment, phase=phase, waits_for=waits_for, deadline=begins)
        return RolloutCourse(waiting, {}, begins)
    own = _of(stage, targets)
    started = {target.cluster_id: _started(target, now) for target in _turns(stage, own, targets)}
    at_work = [target for target in own if target.state not in _SETTLED and target.cluster_id not in started]
    validating = not started and all(target.state is TargetState.VALIDATING for target in at_work)
    phase = DeploymentPhase.VALIDATING if validating else DeploymentPhase.DEPLOYING
    waits_for = f"the health of {_names(at_work)}" if validating else ""
    return RolloutCourse(_replace(deployment, phase=phase, waits_for=waits_for, deadline=None), started)


def _turns(
    stage: RolloutStage, own: Sequence[RolloutTarget], targets: Sequence[RolloutTarget]
) -> list[RolloutTarget]:
    """Return the clusters of a stage that may begin now.

    A cluster takes one of the parallel slots until its first healthy check. As long as no cluster at all has given
    evidence, as after a first stage that was offline, one cluster at a time is tried.
    """
    proven = any(target.progress.healthy_since or target.state is TargetState.HEALTHY for target in targets)
    untried = stage.number > 1 and stage.check_health and not proven
    busy = sum(
        target.goal is TargetGoal.APPLY
        and not target.late
        and target.state not in _SETTLED
        and target.progress.healthy_since is None
        for target in own
    )
    free = max(0, (1 if untried else stage.parallel) - busy)
    order = {name: number for number, name in enumerate(stage.clusters)}
    waiting = [target for target in own if _waits(target)]
    return sorted(waiting, key=lambda target: order[target.cluster_name])[:free]


def _waits(target: RolloutTarget) -> bool:
    """Return whether a cluster waits for its turn."""
    return target.goal is TargetGoal.HOLD and target.step is TargetStep.WAIT


def _started(target: RolloutTarget, now: datetime) -> RolloutTarget:
    return _replace(target, goal=TargetGoal.APPLY, step=TargetStep.PREPARE, next_run_at=now)


def _end_watch(target: RolloutTarget, now: datetime) -> RolloutTarget:
    if target.blue_green and target.base_revision:
        retire_at = target.retire_at or now
        return _replace(target, step=TargetStep.RETAIN_LIVE, next_run_at=retire_at, retire_at=retire_at)
    return _replace(target, step=TargetStep.DONE, goal=TargetGoal.HOLD, next_run_at=None)


def _of(stage: RolloutStage, targets: Iterable[RolloutTarget]) -> list[RolloutTarget]:
    return [target for target in targets if target.stage == stage.number]


def _names(targets: Iterable[RolloutTarget]) -> str:
    names = sorted(target.cluster_name for target in targets)
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _replace(value: Struct, **changes: Any) -> Struct:
    return msgspec.structs.replace(value, **changes)

"""Gates: health is observed until it has been good for long enough, or bad for too long."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.fleet.domain.health import (
    CheckKind,
    Evidence,
    GateProgress,
    GateVerdict,
    OperatorHealth,
    begin_of_soak,
    judge_gate,
    record_check,
    record_unknown,
)
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["validate", "validate_idle", "validate_reverted", "watch"]


async def validate(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Check the new revision, and pass its gate when the soak is over."""
    progress = _recorded(turn, await _observed(turn, services, turn.target.next))
    changes = _gap(turn, progress)
    stage = turn.stage
    soak = stage.soak if stage else timedelta()
    threshold = stage.success_threshold if stage else 0.0
    verdict = _verdict(turn, progress, soak, threshold)
    if verdict is GateVerdict.PASS:
        if turn.target.blue_green:
            changes["retire_at"] = turn.now + turn.strategy.retention
        next_check = turn.now + turn.settings.check_interval
        return turn.advance(TargetStep.WATCH, progress=progress, next_run_at=next_check, **changes)
    return _continued(turn, progress, verdict, begin_of_soak(progress, threshold), soak, **changes)


async def watch(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Check a revision whose gate has passed, until the deployment ends."""
    if not turn.checks_health:
        return turn.end(TargetStep.WATCH)
    progress = _recorded(turn, await _observed(turn, services, turn.target.next))
    verdict = _verdict(turn, progress, timedelta.max, 0.0)
    if verdict is GateVerdict.FAIL:
        return _failed(turn, progress)
    # A cluster that has passed and is unreachable now stops no other.
    return turn.advance(
        TargetStep.WATCH, progress=progress, next_run_at=turn.now + turn.settings.check_interval
    )


async def validate_idle(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Check the new release at zero replicas, and let it switch when its soak is over."""
    health: OperatorHealth | ClusterUnreachable
    try:
        health = await services.clusters.validate_idle(turn.target.cluster_id, turn.target.next)
    except ClusterUnreachable as error:
        health = error
    progress = _recorded(turn, health)
    soak = turn.strategy.validation_period
    verdict = _verdict(turn, progress, soak, 0.0)
    if verdict is GateVerdict.PASS:
        return turn.advance(TargetStep.AWAIT_SWITCH, progress=GateProgress())
    return _continued(turn, progress, verdict, begin_of_soak(progress, 0.0), soak)


async def validate_reverted(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Check that the release that ran before is healthy again."""
    target = turn.target
    health = await _observed(turn, services, target.live)
    if not isinstance(health, ClusterUnreachable):
        # What somebody had changed before the deployment, or owned all along, must not fail a rollback.
        health = health.without(CheckKind.TEMPLATE)
    # Blue was never touched: it has the revision of before, and `revision` is that of green.
    revision = target.base_revision if target.blue_green else target.revision
    progress = _recorded(turn, health, chart_digest=target.base_digest, revision=revision)
    patience = turn.settings.rollback_patience
    verdict = judge_gate(progress, soak=timedelta(), success_threshold=0.0, patience=patience, now=turn.now)
    match verdict:
        case GateVerdict.PASS if target.blue_green:
            removal = turn.intend(target.next, target.revision)
            return turn.advance(TargetStep.REMOVE, intent=removal, **_gap(turn, progress))
        case GateVerdict.PASS:
            return turn.end(TargetStep.ROLLED_BACK, target.reason, target.message)
        case GateVerdict.WAIT:
            return _continued(turn, progress, verdict, None, timedelta())
        case GateVerdict.STALL:
            message = (
                f"the earlier version could not be checked after the rollback: {progress.message}. "
                "Roll the deployment back again to check it"
            )
            return turn.end(TargetStep.ROLLBACK_FAILED, progress.reason, message)
        case GateVerdict.FAIL:
            message = f"the earlier version is not healthy after the rollback: {progress.message}"
            return turn.end(TargetStep.ROLLBACK_FAILED, progress.reason, message)


async def _observed(
    turn: ClusterTurn, services: ClusterServices, release: ReleaseRef
) -> OperatorHealth | ClusterUnreachable:
    try:
        return await services.clusters.observe(turn.target.cluster_id, release, left=turn.left)
    except ClusterUnreachable as error:
        return error


def _recorded(
    turn: ClusterTurn,
    health: OperatorHealth | ClusterUnreachable,
    *,
    chart_digest: str | None = None,
    revision: int | None = None,
) -> GateProgress:
    """Return the progress with one more check. An unknown chart digest is not compared."""
    progress = turn.target.progress
    if isinstance(health, ClusterUnreachable):
        reason = "KeysUnavailable" if isinstance(health, CredentialUnavailable) else "Unreachable"
        return record_unknown(progress, reason, str(health), turn.now)
    expected = turn.deployment.chart_digest if chart_digest is None else chart_digest
    return record_check(
        progress,
        health,
        revision=turn.target.revision if revision is None else revision,
        chart_digest=expected or health.chart_digest,
        now=turn.now,
    )


def _verdict(turn: ClusterTurn, progress: GateProgress, soak: timedelta, threshold: float) -> GateVerdict:
    return judge_gate(
        progress, soak=soak, success_threshold=threshold, patience=turn.settings.patience, now=turn.now
    )


def _continued(
    turn: ClusterTurn,
    progress: GateProgress,
    verdict: GateVerdict,
    begin: datetime | None,
    soak: timedelta,
    **changes: Any,
) -> RolloutTarget:
    """Return the target after a check that did not pass the gate."""
    if verdict is GateVerdict.FAIL:
        return _failed(turn, progress)
    if verdict is GateVerdict.STALL:
        stalled = turn.stall(progress.reason, f"no evidence of health: {progress.message}")
        return msgspec.structs.replace(stalled, progress=progress)
    next_check = turn.now + turn.settings.check_interval
    soaked_at = None if begin is None else begin + soak
    if soaked_at is not None and turn.now < soaked_at < next_check:
        next_check = soaked_at
    soaks = progress.last is Evidence.HEALTHY and soaked_at is not None and soaked_at > turn.now
    doubt = f": {progress.message}" if progress.message else ""
    waits_for = "the end of the soak" if soaks else f"evidence of health{doubt}"
    deadline = soaked_at if soaks else None
    if not soaks and progress.unknown_since is not None:
        deadline = progress.unknown_since + turn.settings.patience
    return turn.later(next_check, waits_for, deadline=deadline, progress=progress, **changes)


def _failed(turn: ClusterTurn, progress: GateProgress) -> RolloutTarget:
    reason = progress.reason or "TooFewHealthyChecks"
    message = progress.message or (
        f"{progress.failed_checks} of {progress.failed_checks + progress.healthy_checks} checks failed"
    )
    failed = turn.end(TargetStep.FAILED, reason, message)
    return msgspec.structs.replace(failed, progress=progress)


def _gap(turn: ClusterTurn, progress: GateProgress) -> dict[str, Any]:
    """Return the time without a controller, measured to the first healthy check after the hand-over."""
    stopped_at = turn.target.stopped_at
    if stopped_at is None or progress.healthy_since is None or turn.target.gap_seconds is not None:
        return {}
    return {"gap_seconds": (progress.healthy_since - stopped_at).total_seconds()}

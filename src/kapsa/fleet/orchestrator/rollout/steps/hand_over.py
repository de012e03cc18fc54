"""The hand-over of blue-green, and its reverse: one controller stops before the other starts."""

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState, TargetStep
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn
from kapsa.fleet.orchestrator.rollout.withdrawals import stall_if_withdrawn

__all__ = ["await_stop", "await_switch", "start", "stop", "switch_webhooks"]

_AFTER_STOP = {
    TargetStep.STOP_LIVE: TargetStep.AWAIT_LIVE_STOP,
    TargetStep.STOP_NEXT: TargetStep.AWAIT_NEXT_STOP,
}
_AFTER_RELEASE = {
    TargetStep.AWAIT_LIVE_STOP: TargetStep.START_NEXT,
    TargetStep.AWAIT_NEXT_STOP: TargetStep.START_LIVE,
}
_AFTER_START = {
    TargetStep.START_NEXT: TargetStep.SWITCH_WEBHOOKS,
    TargetStep.START_LIVE: TargetStep.RESTORE_WEBHOOKS,
}


async def await_switch(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Begin the hand-over at once, or when a person asks for it."""
    stalled = stall_if_withdrawn(turn)
    if stalled is not None:
        return stalled
    if turn.strategy.auto_switch or turn.deployment.switch_requested:
        # Recorded before the first act: from here on a rollback must start the earlier controller again.
        return turn.advance(TargetStep.STOP_LIVE, handed_over=True)
    waits_for = "a person to switch to the new release"
    return turn.advance(TargetStep.AWAIT_SWITCH, waits_for=waits_for, next_run_at=None)


async def stop(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Scale the controller that runs to zero. On the way back it first converts what only it can convert."""
    target = turn.target
    if target.step is TargetStep.STOP_NEXT:
        deployment_id = turn.deployment.id
        turn = turn.noting(
            await services.clusters.return_storage(target.cluster_id, deployment_id, turn.guard)
        )
    if _exists(turn, _outgoing(turn)):
        await services.clusters.scale_down(target.cluster_id, _outgoing(turn), turn.guard)
    stopped_at = target.stopped_at or turn.now
    return turn.advance(_AFTER_STOP[target.step], stopped_at=stopped_at)


async def await_stop(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Wait until the stopped controller has no pod and no Lease: two must never run."""
    release = _outgoing(turn)
    if not _exists(turn, release):
        return turn.advance(_AFTER_RELEASE[turn.target.step])
    activity = await services.clusters.activity(turn.target.cluster_id, release)
    if activity.stopped:
        return turn.advance(_AFTER_RELEASE[turn.target.step])
    held = f" and {activity.lease_holder} holds the Lease" if activity.lease_holder else ""
    return _wait(turn, "ControllerStillRuns", f"{activity.pods} pods of {release} still run{held}")


async def start(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Scale the other controller up."""
    if _exists(turn, _incoming(turn)):
        await services.clusters.scale_up(turn.target.cluster_id, _incoming(turn), turn.guard)
    return turn.advance(_AFTER_START[turn.target.step])


async def switch_webhooks(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Point webhooks at the controller that runs now, proven by a write through them."""
    target = turn.target
    try:
        if _exists(turn, _incoming(turn)):
            await services.clusters.switch_webhooks(
                target.cluster_id, _incoming(turn), _outgoing(turn), turn.guard
            )
    except ClusterNotReady as error:
        return _wait(turn, "WebhooksNotReady", str(error))
    if target.state is TargetState.ROLLING_BACK:
        return turn.advance(TargetStep.VALIDATE_REVERTED, progress=GateProgress())
    return turn.advance(TargetStep.VALIDATE, progress=GateProgress())


def _wait(turn: ClusterTurn, reason: str, message: str) -> RolloutTarget:
    """Return the target with another look soon; a hand-over that takes too long goes back."""
    waiting = turn.retry(message, patience=turn.settings.hand_over_patience)
    if waiting is not None:
        return waiting
    back = turn.target.state is TargetState.ROLLING_BACK
    return turn.end(TargetStep.ROLLBACK_FAILED if back else TargetStep.FAILED, reason, message)


def _outgoing(turn: ClusterTurn) -> ReleaseRef:
    back = turn.target.state is TargetState.ROLLING_BACK
    return turn.target.next if back else turn.target.live


def _incoming(turn: ClusterTurn) -> ReleaseRef:
    back = turn.target.state is TargetState.ROLLING_BACK
    return turn.target.live if back else turn.target.next


def _exists(turn: ClusterTurn, release: ReleaseRef) -> bool:
    """Return whether a release was there: a first install has none before it."""
    return release == turn.target.next or bool(turn.target.base_revision)

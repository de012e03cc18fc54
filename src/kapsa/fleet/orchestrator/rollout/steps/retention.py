"""The end of blue: kept for a day after the switch, then removed."""

from kapsa.fleet.domain.rollout.releases import IntentMatch, is_installed, latest_record, match_uninstall
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetGoal, TargetStep
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted
from kapsa.fleet.orchestrator.rollout.turn import POSTPONE, ClusterServices, ClusterTurn

__all__ = ["retain", "retire"]


async def retain(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Begin the removal of the earlier release, unless a later deployment has taken it into use."""
    target = turn.target
    if turn.held:
        return turn.later(turn.now + POSTPONE, "a later deployment on this cluster to end")
    if turn.installation is not None and turn.installation.release == target.live:
        return turn.advance(TargetStep.RETIRE_LIVE, intent=None)
    latest = latest_record(await services.helm.history(target.cluster_id, target.live))
    intent = turn.intend(target.live, latest.revision if latest else 0)
    return turn.advance(TargetStep.RETIRE_LIVE, intent=intent)


async def retire(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Uninstall the earlier release, without CRDs. One that changed meanwhile is left alone.

    A rollback that was asked for meanwhile turns back if the removal has not begun, and else fails after it.
    """
    target, intent = turn.target, turn.target.intent
    if intent is None or intent.release != target.live:
        return _retired(turn)
    history = await services.helm.history(target.cluster_id, target.live)
    if target.goal is TargetGoal.ROLL_BACK and is_installed(history):
        return _retired(turn)
    verdict = match_uninstall(intent, history)
    if verdict.match is IntentMatch.CHANGED:
        return _retired(turn, "ChangedByOther", verdict.message)
    if verdict.match is not IntentMatch.DONE:
        try:
            await services.helm.uninstall(target.cluster_id, target.live, turn.guard)
        except HelmFailed as error:
            return turn.wait_or_give_up("HelmFailed", str(error))
        except HelmInterrupted as error:
            return turn.wait_or_give_up("HelmInterrupted", str(error))
    return _retired(turn)


def _retired(turn: ClusterTurn, reason: str = "", message: str = "") -> RolloutTarget:
    if turn.target.goal is TargetGoal.ROLL_BACK:
        return turn.advance(TargetStep.PREPARE_ROLLBACK)
    return turn.end(TargetStep.DONE, reason, message)

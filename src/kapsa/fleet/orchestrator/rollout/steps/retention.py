"""The end of blue: kept for a day after the switch, then removed."""

from datetime import timedelta

from kapsa.fleet.domain.rollout.releases import IntentMatch, latest_record, match_uninstall
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["retain", "retire"]

POSTPONE = timedelta(hours=1)


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
    """Uninstall the earlier release, without CRDs. One that changed meanwhile is left alone."""
    target, intent = turn.target, turn.target.intent
    if intent is None or intent.release != target.live:
        return turn.end(TargetStep.DONE)
    verdict = match_uninstall(intent, await services.helm.history(target.cluster_id, target.live))
    if verdict.match is IntentMatch.CHANGED:
        return turn.end(TargetStep.DONE, "ChangedByOther", verdict.message)
    if verdict.match is not IntentMatch.DONE:
        try:
            await services.helm.uninstall(target.cluster_id, target.live, turn.guard)
        except HelmFailed as error:
            return turn.wait_or_give_up("HelmFailed", str(error))
        except HelmInterrupted as error:
            return turn.wait_or_give_up("HelmInterrupted", str(error))
    return turn.end(TargetStep.DONE)

"""The way back: the intent of the rollback, Helm's rollback, and the removal of a first install."""

import msgspec

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.releases import (
    DEPLOYMENT_LABEL,
    IntentMatch,
    ReleaseIntent,
    ReleaseRecord,
    is_installed,
    is_rollback,
    latest_record,
    made_by,
    match_rollback,
    match_uninstall,
)
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted, HelmRefused
from kapsa.fleet.orchestrator.rollout.helm_failures import shown_failure
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["prepare_rollback", "remove", "revert"]


async def prepare_rollback(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Record what the rollback does here: nothing, an uninstall, Helm's rollback, or a hand-over back."""
    target = turn.target
    history = await services.helm.history(target.cluster_id, target.next)
    latest = latest_record(history)
    if target.blue_green:
        return await _prepare_blue_green(turn, services, latest)
    if latest is not None and not _ours(turn, latest):
        if latest.revision == target.planned_revision:  # made before the plan: Helm has not begun
            return await _end_unchanged(turn, services, target.base_revision or 0)
        return _changed_by_other(turn, latest)
    if target.base_revision and not any(record.revision == target.base_revision for record in history):
        return _gone(turn)
    if latest is None or latest.revision == target.base_revision:
        return await _end_unchanged(turn, services, latest.revision if latest else 0)
    if not target.base_revision:
        return turn.advance(TargetStep.REMOVE, intent=turn.intend(target.next, latest.revision))
    revision = latest.revision if _cut_off(target, latest) else latest.revision + 1
    intent = turn.intend(target.next, revision, returns_to=target.base_revision)
    return turn.advance(TargetStep.REVERT, intent=intent)


def _cut_off(target: RolloutTarget, latest: ReleaseRecord) -> bool:
    """Return whether an earlier rollback of the deployment has failed here and left its own revision pending.

    That revision is made again. Only the intent distinguishes it from the rollback of a person, since Helm gives both
    the labels of the revision that they return to.
    """
    intent, base = target.intent, target.base_revision or 0
    if intent is None or (intent.revision, intent.returns_to) != (latest.revision, base):
        return False
    return latest.status.pending and is_rollback(latest, target.next, base)


async def _prepare_blue_green(
    turn: ClusterTurn, services: ClusterServices, latest: ReleaseRecord | None
) -> RolloutTarget:
    target = turn.target
    if target.handed_over and target.base_revision:
        if not is_installed(await services.helm.history(target.cluster_id, target.live)):
            return _gone(turn)
        return turn.advance(TargetStep.STOP_NEXT, stopped_at=None, gap_seconds=None)
    if latest is None or (target.intent is not None and latest.revision < target.intent.revision):
        return await _end_unchanged(turn, services, 0)
    if latest.labels.get(DEPLOYMENT_LABEL) != str(turn.deployment.id):
        return _changed_by_other(turn, latest)
    return turn.advance(TargetStep.REMOVE, intent=turn.intend(target.next, latest.revision))


async def _end_unchanged(turn: ClusterTurn, services: ClusterServices, revision: int) -> RolloutTarget:
    """Return the target of a cluster on which Helm has made nothing yet: only its CRDs go back."""
    return _ended(await _with_crds_reverted(turn, services), revision)


def _ended(turn: ClusterTurn, revision: int) -> RolloutTarget:
    back = turn.end(TargetStep.ROLLED_BACK, turn.target.reason, turn.target.message)
    return msgspec.structs.replace(back, revision=revision)


def _changed_by_other(turn: ClusterTurn, latest: ReleaseRecord) -> RolloutTarget:
    message = f"revision {latest.revision} ({latest.status}) of {turn.target.next} was made by another client"
    return turn.wait_or_give_up("ChangedByOther", message)


def _gone(turn: ClusterTurn) -> RolloutTarget:
    message = f"revision {turn.target.base_revision} of {turn.target.live} no longer exists: deploy that version again"
    return turn.end(TargetStep.ROLLBACK_FAILED, "RevisionGone", message)


def _ours(turn: ClusterTurn, latest: ReleaseRecord) -> bool:
    """Return whether the last revision is the one before the deployment, or one that the deployment made."""
    target = turn.target
    base = target.base_revision or 0
    return latest.revision == base or made_by(latest, str(turn.deployment.id), target.next, base)


async def revert(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Return the release to the revision before the deployment, or find that it has returned."""
    target, intent = turn.target, turn.target.intent
    assert intent is not None
    verdict = match_rollback(intent, await services.helm.history(target.cluster_id, target.next))
    match verdict.match:
        case IntentMatch.DONE:
            return _reverted(await _with_crds_reverted(turn, services), intent.revision)
        case IntentMatch.FAILED:
            turn = await _with_crds_reverted(turn, services)
            return turn.end(TargetStep.ROLLBACK_FAILED, "HelmFailed", shown_failure(verdict.message, {}))
        case IntentMatch.BUSY | IntentMatch.CHANGED:
            return turn.wait_or_give_up("ChangedByOther", verdict.message)
        case IntentMatch.CUT_OFF:
            assert verdict.record is not None
            await services.helm.remove_pending(target.cluster_id, target.next, verdict.record, turn.guard)
            return await _roll_back(turn, services, intent)
        case IntentMatch.NOT_BEGUN:
            return await _roll_back(turn, services, intent)


async def _roll_back(turn: ClusterTurn, services: ClusterServices, intent: ReleaseIntent) -> RolloutTarget:
    target = turn.target
    # Before the chart goes back: a conversion must not point at a Service that Helm is about to remove.
    turn = await _with_crds_reverted(turn, services)
    try:
        revision = await services.helm.rollback(
            target.cluster_id, target.next, intent.returns_to, turn.guard, left=turn.left
        )
    except HelmFailed as error:
        return turn.end(TargetStep.ROLLBACK_FAILED, "HelmFailed", str(error))
    except HelmRefused as error:
        return turn.wait_or_give_up("ReleaseBusy", str(error))
    except HelmInterrupted as error:
        return turn.wait_or_give_up("HelmInterrupted", str(error))
    return _reverted(turn, revision)


async def _with_crds_reverted(turn: ClusterTurn, services: ClusterServices) -> ClusterTurn:
    """Take the CRDs back, and return the turn with what that leaves behind. A repetition reports the same."""
    clusters, target = services.clusters, turn.target
    return turn.noting(await clusters.revert_crds(target.cluster_id, turn.deployment.id, turn.guard))


def _reverted(turn: ClusterTurn, revision: int) -> RolloutTarget:
    if not turn.checks_health:
        return _ended(turn, revision)
    return turn.advance(TargetStep.VALIDATE_REVERTED, revision=revision, progress=GateProgress())


async def remove(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Uninstall the release that the deployment made, without CRDs."""
    target, intent = turn.target, turn.target.intent
    assert intent is not None
    verdict = match_uninstall(intent, await services.helm.history(target.cluster_id, target.next))
    if verdict.match is IntentMatch.CHANGED:
        return turn.end(TargetStep.ROLLBACK_FAILED, "ChangedByOther", verdict.message)
    turn = await _with_crds_reverted(turn, services)
    if verdict.match is not IntentMatch.DONE:
        try:
            await services.helm.uninstall(target.cluster_id, target.next, turn.guard)
        except HelmFailed as error:
            return turn.end(TargetStep.ROLLBACK_FAILED, "HelmFailed", str(error))
        except HelmInterrupted as error:
            return turn.wait_or_give_up("HelmInterrupted", str(error))
    return turn.end(TargetStep.ROLLED_BACK, target.reason, target.message)

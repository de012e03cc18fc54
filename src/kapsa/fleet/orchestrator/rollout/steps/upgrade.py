"""The change itself: CRDs first, then Helm with the approved bytes."""

import asyncio

import structlog

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.releases import IntentMatch, ReleaseIntent, match_upgrade
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady, ClusterRefused, CrdRequest
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted, HelmRefused, UpgradeRequest
from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.ports.vault import VaultError
from kapsa.fleet.orchestrator.rollout.approved_manifest import without_crds
from kapsa.fleet.orchestrator.rollout.helm_failures import HELM_CONFLICT, shown_failure
from kapsa.fleet.orchestrator.rollout.steps.approved_bundle import approved_bundle, opened_bundle
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn
from kapsa.fleet.orchestrator.rollout.withdrawals import stall_if_withdrawn

__all__ = ["upgrade"]

log = structlog.get_logger()


async def upgrade(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Carry out the recorded intent, or find that it has been carried out."""
    target, intent = turn.target, turn.target.intent
    assert intent is not None
    verdict = match_upgrade(intent, await services.helm.history(target.cluster_id, target.next))
    match verdict.match:
        case IntentMatch.DONE:
            return _applied(turn, intent.revision)
        case IntentMatch.FAILED:
            message = await _without_values(turn, services, verdict.message)
            return _gave_up(turn, message, conflict=HELM_CONFLICT in verdict.message)
        case IntentMatch.BUSY:
            return turn.wait_or_give_up("ReleaseBusy", verdict.message)
        case IntentMatch.CHANGED:
            return turn.stall("ChangedByOther", verdict.message)
        case IntentMatch.CUT_OFF:
            assert verdict.record is not None
            await services.helm.remove_pending(target.cluster_id, target.next, verdict.record, turn.guard)
            return await _apply(turn, services, intent)
        case IntentMatch.NOT_BEGUN:
            # A wait for keys or for a busy cluster may have been long.
            return stall_if_withdrawn(turn) or await _apply(turn, services, intent)


async def _apply(turn: ClusterTurn, services: ClusterServices, intent: ReleaseIntent) -> RolloutTarget:
    bundle = await approved_bundle(turn, services)
    if isinstance(bundle, RolloutTarget):
        return bundle
    # Large CRDs take a while to parse.
    request = await asyncio.to_thread(_request, turn, intent, bundle)
    try:
        await services.clusters.apply_crds(_crds(turn, bundle), turn.guard)
    except ClusterRefused as error:
        return turn.end(TargetStep.FAILED, "CrdsRefused", str(error))
    except ClusterNotReady as error:
        return turn.wait_or_give_up("CrdsNotReady", str(error))
    try:
        revision = await services.helm.upgrade(request, turn.guard)
    except HelmFailed as error:
        return _gave_up(turn, str(error), conflict=HELM_CONFLICT in str(error))
    except HelmRefused as error:
        return turn.wait_or_give_up("ReleaseBusy", str(error))
    except HelmInterrupted as error:
        return turn.wait_or_give_up("HelmInterrupted", str(error))
    return _applied(turn, revision)


async def _without_values(turn: ClusterTurn, services: ClusterServices, message: str) -> str:
    """Return what the history says about a failure, as the replica that ran Helm would show it.

    Without the keys the message is left out: a version that has failed goes back all the same.
    """
    try:
        bundle = await opened_bundle(turn, services)
    except VaultError as error:
        bundle = None
        log.warning("the message of a failed run cannot be shown", error=str(error))
    if bundle is None:
        return (
            "Helm gave up, and its message may quote values that cannot be opened now: `helm history` has it"
        )
    return shown_failure(message, bundle.values)


def _gave_up(turn: ClusterTurn, message: str, *, conflict: bool) -> RolloutTarget:
    """Return the target after Helm gave up: a failure of the version, unless somebody else's edit was in its way."""
    if not conflict:
        return turn.end(TargetStep.FAILED, "HelmFailed", message)
    advice = "abort the deployment, then retry it, which plans it again; or roll it back"
    return turn.stall("ChangedByOther", f"a field was changed while Helm ran: {message}: {advice}")


def _request(turn: ClusterTurn, intent: ReleaseIntent, bundle: ReleaseBundle) -> UpgradeRequest:
    deployment = turn.deployment
    return UpgradeRequest(
        cluster_id=turn.target.cluster_id,
        release=intent.release,
        chart_digest=deployment.chart_digest,
        manifest=without_crds(bundle.manifest),
        values=bundle.values,
        labels=intent.labels,
        description=f"{deployment.operator_name} {deployment.version}, deployment {deployment.id}",
        on_conflict=deployment.on_conflict,
        idle=turn.target.blue_green,
    )


def _crds(turn: ClusterTurn, bundle: ReleaseBundle) -> CrdRequest:
    target = turn.target
    return CrdRequest(
        cluster_id=target.cluster_id,
        chart_digest=turn.deployment.chart_digest,
        deployment_id=turn.deployment.id,
        live=target.live,
        next=target.next,
        manifest=bundle.manifest,
        base_chart=target.base_digest if target.base_revision else None,
    )


def _applied(turn: ClusterTurn, revision: int) -> RolloutTarget:
    changes = {"revision": revision, "progress": GateProgress()}
    if turn.target.blue_green:
        return turn.advance(TargetStep.VALIDATE_NEXT, **changes)
    step = TargetStep.VALIDATE if turn.checks_health else TargetStep.WATCH
    return turn.advance(step, **changes)

"""The change itself: CRDs first, then Helm with the approved bytes."""

import asyncio

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.releases import IntentMatch, ReleaseIntent, match_upgrade
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady, ClusterRefused, CrdRequest
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted, HelmRefused, UpgradeRequest
from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.rollout.approved_manifest import without_crds
from kapsa.fleet.orchestrator.rollout.steps.approved_bundle import approved_bundle
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["HELM_CONFLICT", "upgrade"]

HELM_CONFLICT = "conflict occurred while applying"
"""The words of Helm for a field that another manager has set."""


async def upgrade(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Carry out the recorded intent, or find that it has been carried out."""
    target, intent = turn.target, turn.target.intent
    assert intent is not None
    verdict = match_upgrade(intent, await services.helm.history(target.cluster_id, target.next))
    match verdict.match:
        case IntentMatch.DONE:
            return _applied(turn, intent.revision)
        case IntentMatch.FAILED:
            return _gave_up(turn, verdict.message)
        case IntentMatch.BUSY:
            return turn.wait_or_give_up("ReleaseBusy", verdict.message)
        case IntentMatch.CHANGED:
            return turn.stall("ChangedByOther", verdict.message)
        case IntentMatch.CUT_OFF:
            assert verdict.record is not None
            await services.helm.remove_pending(target.cluster_id, target.next, verdict.record, turn.guard)
            return await _apply(turn, services, intent)
        case IntentMatch.NOT_BEGUN:
            return await _apply(turn, services, intent)


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
        return _gave_up(turn, str(error))
    except HelmRefused as error:
        return turn.wait_or_give_up("ReleaseBusy", str(error))
    except HelmInterrupted as error:
        return turn.wait_or_give_up("HelmInterrupted", str(error))
    return _applied(turn, revision)


def _gave_up(turn: ClusterTurn, message: str) -> RolloutTarget:
    """Return the target after Helm gave up: a failure of the version, unless somebody else's edit was in its way."""
    if HELM_CONFLICT not in message:
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

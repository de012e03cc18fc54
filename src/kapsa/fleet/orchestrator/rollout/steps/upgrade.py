"""The change itself: CRDs first, then Helm with the approved bytes."""

import asyncio
import hashlib

from kapsa.fleet.domain.health import GateProgress
from kapsa.fleet.domain.rollout.releases import IntentMatch, ReleaseIntent, match_upgrade
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady, ClusterRefused, CrdRequest
from kapsa.fleet.orchestrator.ports.helm import HelmFailed, HelmInterrupted, HelmRefused, UpgradeRequest
from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable
from kapsa.fleet.orchestrator.rollout.approved_manifest import without_crds
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["upgrade"]


async def upgrade(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Carry out the recorded intent, or find that it has been carried out."""
    target, intent = turn.target, turn.target.intent
    assert intent is not None
    verdict = match_upgrade(intent, await services.helm.history(target.cluster_id, target.next))
    match verdict.match:
        case IntentMatch.DONE:
            return _applied(turn, intent.revision)
        case IntentMatch.FAILED:
            return turn.end(TargetStep.FAILED, "HelmFailed", verdict.message)
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
    try:
        bundle = await _opened(turn, services)
    except VaultUnavailable:
        raise  # a wait, as for a credential that cannot be opened
    except VaultError as error:
        message = f"the stored manifest cannot be opened: {error}. Abort the deployment, then retry it"
        return turn.stall("ManifestUnreadable", message)
    if bundle is None or _digest(bundle.manifest) != turn.target.manifest_digest:
        message = "the stored manifest is not the one that was planned: abort the deployment, then retry it"
        return turn.stall("ManifestChanged", message)
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
        return turn.end(TargetStep.FAILED, "HelmFailed", str(error))
    except HelmRefused as error:
        return turn.wait_or_give_up("ReleaseBusy", str(error))
    except HelmInterrupted as error:
        return turn.wait_or_give_up("HelmInterrupted", str(error))
    return _applied(turn, revision)


async def _opened(turn: ClusterTurn, services: ClusterServices) -> ReleaseBundle | None:
    if turn.bundle is None:
        return None
    return await services.secrets.open_bundle(turn.deployment.id, turn.target.cluster_id, turn.bundle)


def _digest(manifest: bytes) -> str:
    return "sha256:" + hashlib.sha256(manifest).hexdigest()


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

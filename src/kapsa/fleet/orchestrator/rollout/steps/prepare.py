"""Before a cluster is changed: its maintenance window, its present release, and the intent."""

import msgspec

from kapsa.fleet.domain.registry.windows import judge_windows
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.releases import (
    IntentMatch,
    ReleaseRecord,
    base_record,
    latest_record,
    made_by,
    match_upgrade,
)
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetStep
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from kapsa.fleet.orchestrator.rollout.steps.approved_bundle import approved_bundle
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn
from kapsa.fleet.orchestrator.rollout.withdrawals import stall_if_withdrawn

__all__ = ["prepare"]


async def prepare(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget:
    """Record the intent to change the cluster, once it may be changed and is as the plan has it."""
    held = stall_if_withdrawn(turn) or _closed(turn)
    if held is not None:
        return held
    target = turn.target
    live = await services.helm.history(target.cluster_id, target.live)
    latest = latest_record(live)
    present = latest.revision if latest else 0
    if present != target.planned_revision:
        message = (
            f"release {target.live} is at revision {present}, and the plan was made for revision "
            f"{target.planned_revision}: retry the deployment, which plans it again"
        )
        return turn.stall("ChangedSincePlan", message)
    try:
        return await _prepared(turn, services, live)
    except CredentialUnavailable:
        raise
    except ClusterUnreachable as error:
        # It answered a moment ago: it is busy, which neither skips it nor lets the next stage begin without it.
        waiting = turn.wait_or_give_up("Unreachable", str(error))
        return msgspec.structs.replace(waiting, offline_since=None)


async def _prepared(
    turn: ClusterTurn, services: ClusterServices, live: tuple[ReleaseRecord, ...]
) -> RolloutTarget:
    target = turn.target
    history = await services.helm.history(target.cluster_id, target.next) if target.blue_green else live
    prepared = _intent(turn, live, history)
    if prepared.intent is None:
        return prepared
    taken = await _taken(turn, services)
    if taken is not None:
        return taken
    if turn.checks_health and not target.changed:
        digest = turn.deployment.chart_digest
        await services.clusters.record_baseline(
            target.cluster_id, target.operator_id, digest, target.live, additions=turn.additions
        )
    return prepared


async def _taken(turn: ClusterTurn, services: ClusterServices) -> RolloutTarget | None:
    """Return the target with a stall if somebody has set fields that the plan does not name."""
    assert turn.cluster is not None
    bundle = await approved_bundle(turn, services)
    if isinstance(bundle, RolloutTarget):
        return bundle
    # The fields that are left to their owners are not in the manifest.
    planned = turn.conflicts if turn.deployment.on_conflict is ConflictPolicy.TAKE else ()
    conflicts = await services.trials.conflicts(turn.cluster, turn.target.next, bundle.manifest)
    others = [each for each in conflicts if each not in planned]
    if not others:
        return None
    first = others[0]
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    message = (
        f"{first.field} of {first.object} is owned by {first.manager}{more}, which the plan does not have: "
        "retry the deployment, which plans it again"
    )
    return turn.stall("ChangedSincePlan", message)


def _closed(turn: ClusterTurn) -> RolloutTarget | None:
    """Return the target with a wait if a window or a freeze keeps the cluster from being changed now."""
    if turn.cluster is None or turn.deployment.window_override_reason:
        return None
    verdict = judge_windows(turn.cluster.windows, turn.cluster.freezes, turn.now)
    if verdict.open:
        return None
    if verdict.opens_at is None:
        advice = "change the cluster's windows or freezes, then resume the deployment"
        return turn.stall(
            "NeverOpen", f"{verdict.reason}, and the cluster does not open in the years to come: {advice}"
        )
    moment = min(verdict.opens_at, turn.now + turn.settings.window_interval)
    return turn.later(moment, verdict.reason, deadline=verdict.opens_at, offline_since=None)


def _intent(
    turn: ClusterTurn, live: tuple[ReleaseRecord, ...], history: tuple[ReleaseRecord, ...]
) -> RolloutTarget:
    latest = latest_record(history)
    intent = turn.intend(turn.target.next, (latest.revision if latest else 0) + 1)
    verdict = match_upgrade(intent, history)
    if verdict.match is IntentMatch.BUSY:
        return turn.wait_or_give_up("ReleaseBusy", verdict.message)
    step = TargetStep.INSTALL_NEXT if turn.target.blue_green else TargetStep.UPGRADE
    return turn.advance(step, intent=intent, offline_since=None, **_base(turn, live))


def _base(turn: ClusterTurn, live: tuple[ReleaseRecord, ...]) -> dict[str, object]:
    """Return what a rollback returns to. An earlier attempt has set it, if its revision is still there."""
    if turn.target.changed and _continues(turn, latest_record(live)):
        return {}
    base = base_record(live, turn.target.live)
    if base is None:
        return {"base_revision": 0}
    planned = base.revision == turn.target.planned_revision
    return {
        "base_revision": base.revision,
        "base_digest": turn.target.present_chart if planned else "",
        "base_version": base.version,
    }


def _continues(turn: ClusterTurn, latest: ReleaseRecord | None) -> bool:
    """Return whether nobody else has replaced or removed the release since the attempt before."""
    if latest is None:
        return not turn.target.base_revision
    base = turn.target.base_revision or 0
    return latest.revision == base or made_by(latest, str(turn.deployment.id), turn.target.live, base)

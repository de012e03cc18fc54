"""The outcome of a plan: it fails, waits for approval, waits for a slot, or begins."""

import uuid
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.plans import RolloutPlan, plan_digest
from kapsa.fleet.domain.rollout.targets import DELETED, TargetStep
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import SealedSecret
from kapsa.fleet.orchestrator.rollout.plan_input import remaining
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings

__all__ = ["PlanDesk", "SealedPlan"]

PROBLEMS_SHOWN = 5
_NO_TURN = "NoTurn"
"""The reason of a deployment that waited too long for other deployments to end."""


class SealedPlan(msgspec.Struct, frozen=True):
    """A plan, and what it applies to each cluster, sealed."""

    plan: RolloutPlan
    bundles: dict[uuid.UUID, SealedSecret]


class PlanDesk:
    """The keeper of plans, in the transactions of the conductor."""

    def __init__(
        self, store: RolloutStore, registry: FleetRegistry, desk: ApprovalDesk, settings: EngineSettings
    ) -> None:
        self._store = store
        self._registry = registry
        self._desk = desk
        self._settings = settings

    async def wait_before(
        self, connection: Connection, deployment: VersionDeployment, now: datetime
    ) -> tuple[VersionDeployment, datetime | None] | None:
        """Return the deployment in its queue if it could not begin now anyway; None if a plan is to be made."""
        if not deployment.plan_digest:
            return None
        waits_for = await self._blocked(connection, deployment)
        return await self._queue(connection, deployment, waits_for, now) if waits_for else None

    async def _queue(
        self, connection: Connection, deployment: VersionDeployment, waits_for: str, now: datetime
    ) -> tuple[VersionDeployment, datetime | None]:
        """Return the deployment while it waits for its turn, or as it fails, and when to look at it again."""
        since = deployment.queued_since or now
        deadline = since + self._settings.queue_patience
        if now >= deadline:
            hours = self._settings.queue_patience / timedelta(hours=1)
            message = (
                f"{_NO_TURN}: waited {hours:g} hours for {waits_for}. Retry the deployment to wait again"
            )
            return await self._fail(connection, deployment, message, now)
        queued = msgspec.structs.replace(
            deployment, waits_for=waits_for, deadline=deadline, queued_since=since
        )
        return queued, min(now + self._settings.retry_interval, deadline)

    async def _blocked(self, connection: Connection, deployment: VersionDeployment) -> str:
        limit = self._settings.max_concurrent_deployments
        if await self._store.running(connection) >= limit:
            return f"one of the {limit} deployments at work to end"
        if await self._store.rolling_back(connection, deployment.operator_id):
            return f"a rollback of {deployment.operator_name} to end"
        return ""

    async def store(
        self, connection: Connection, deployment: VersionDeployment, planned: SealedPlan, now: datetime
    ) -> tuple[VersionDeployment, datetime | None]:
        """Store a plan. Return the deployment as it becomes, and when to look at it again."""
        plan = planned.plan
        deployment = msgspec.structs.replace(
            deployment,
            plan_digest=plan_digest(plan),
            chart_digest=plan.chart_digest,
            waits_for="",
            deadline=None,
            stage=0,
            stage_passed_at=None,
        )
        await self._store.save_plan(connection, deployment.id, plan, deployment.plan_digest, planned.bundles)
        if plan.problems:
            return await self._refuse(connection, deployment, plan, now)
        if not await self._desk.granted(connection, deployment, plan, now):
            requests = await self._desk.request(connection, deployment, plan, now)
            names = sorted({f"{each.kind} in {each.environment}" for each in requests})
            deadline = min(each.expires_at for each in requests)
            after = msgspec.structs.replace(
                deployment,
                phase=DeploymentPhase.AWAITING_APPROVAL,
                waits_for=f"approval of {', '.join(names)}",
                deadline=deadline,
                queued_since=None,
            )
            return after, deadline
        waits_for = await self._blocked(connection, deployment)
        if waits_for:
            return await self._queue(connection, deployment, waits_for, now)
        return await self._begin(connection, deployment, plan, now), now

    async def _refuse(
        self, connection: Connection, deployment: VersionDeployment, plan: RolloutPlan, now: datetime
    ) -> tuple[VersionDeployment, None]:
        more = len(plan.problems) - PROBLEMS_SHOWN
        shown = "; ".join(plan.problems[:PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        return await self._fail(connection, deployment, f"the plan cannot be carried out: {shown}", now)

    async def _fail(
        self, connection: Connection, deployment: VersionDeployment, message: str, now: datetime
    ) -> tuple[VersionDeployment, None]:
        await self._desk.void(connection, deployment.id, now)
        return deployment.ended(DeploymentPhase.FAILED, now, message), None

    async def _begin(
        self, connection: Connection, deployment: VersionDeployment, plan: RolloutPlan, now: datetime
    ) -> VersionDeployment:
        await self._desk.use(connection, deployment, plan, now)
        planned = {each.cluster_id: each for each in plan.clusters}
        for target in remaining(await self._store.targets(connection, deployment.id)):
            each = planned.get(target.cluster_id)
            if each is None:
                reason = "Offline" if target.cluster_name in plan.skipped else DELETED
                target = msgspec.structs.replace(target, step=TargetStep.SKIPPED, reason=reason)
            else:
                target = msgspec.structs.replace(
                    target,
                    stage=each.stage,
                    live=each.live,
                    next=each.next,
                    planned_revision=each.present_revision,
                    manifest_digest=each.manifest_digest,
                    present_chart=each.present_chart,
                )
            await self._store.reset(connection, target)
        return msgspec.structs.replace(
            deployment,
            phase=DeploymentPhase.DEPLOYING,
            queued_since=None,
            stages=plan.stages,
            started_at=now,
            message="",
            finished_at=None,
        )

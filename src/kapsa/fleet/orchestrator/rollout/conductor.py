"""The conductor: decides for a whole deployment, in one transaction each time."""

from datetime import datetime
from typing import Any

import msgspec
import structlog

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.rollout.course import RolloutCourse, steer
from kapsa.fleet.domain.rollout.deployments import (
    DeploymentPhase,
    RolloutEvent,
    VersionDeployment,
    check_phase,
)
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetGoal, TargetStep, check_step
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk
from kapsa.fleet.orchestrator.planner import RolloutPlanner
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import FenceLost, RolloutClaim, RolloutStore
from kapsa.fleet.orchestrator.ports.telemetry import UNREPORTED, RolloutReporter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices
from kapsa.fleet.orchestrator.rollout.plan_input import PlanInput, gather, opened
from kapsa.fleet.orchestrator.rollout.plan_outcome import PlanDesk, SealedPlan
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings
from kapsa.fleet.orchestrator.rollout.withdrawals import withdrawal
from kapsa.fleet.orchestrator.rollout.worker import installed

__all__ = ["RolloutConductor"]

log = structlog.get_logger()


class _Change(msgspec.Struct, frozen=True):
    """A deployment before and after a decision."""

    before: VersionDeployment
    after: VersionDeployment


class _Delay(msgspec.Struct, frozen=True):
    """The reason why there can be no plan yet."""

    reason: str


class RolloutConductor:
    """The half of the engine that decides what a deployment asks of its clusters."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        registry: FleetRegistry,
        planner: RolloutPlanner,
        desk: ApprovalDesk,
        notices: DeploymentNotices,
        secrets: RolloutSecrets,
        settings: EngineSettings,
        *,
        reporter: RolloutReporter = UNREPORTED,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._registry = registry
        self._planner = planner
        self._desk = desk
        self._notices = notices
        self._secrets = secrets
        self._settings = settings
        self._reporter = reporter
        self._plans = PlanDesk(store, registry, desk, settings)

    async def conduct(self, claim: RolloutClaim) -> None:
        """Decide once for a claimed deployment, and report it if that ends a phase."""
        try:
            change = await self._decide(claim)
        except FenceLost as error:
            log.info(
                "another replica has taken over a deployment",
                deploymentId=str(claim.deployment_id),
                error=str(error),
            )
            return
        if change is not None and change.before.phase is not change.after.phase:
            self._reporter.phase_changed(change.before, change.after)

    async def _decide(self, claim: RolloutClaim) -> _Change | None:
        async with self._transactions.transaction() as connection:
            deployment = await self._store.lock(connection, claim.deployment_id, fence=claim.fence)
            if deployment.phase is DeploymentPhase.AWAITING_APPROVAL:
                return await self._await_approval(connection, deployment)
            if deployment.phase is not DeploymentPhase.PLANNING:
                return await self._steer(connection, deployment)
            now = await self._store.now(connection)
            queued = await self._plans.wait_before(connection, deployment, now)
            if queued is not None:
                return await self._finish(connection, deployment, *queued)
            needed = await gather(connection, self._store, self._registry, deployment)
        return await self._plan(claim, deployment, needed)

    async def _plan(
        self, claim: RolloutClaim, deployment: VersionDeployment, needed: PlanInput | str
    ) -> _Change | None:
        """Make the plan, with no transaction open, and store what follows from it."""
        outcome = needed if isinstance(needed, str) else await self._make(deployment, needed)
        async with self._transactions.transaction() as connection:
            deployment = await self._store.lock(connection, claim.deployment_id, fence=claim.fence)
            if deployment.phase is not DeploymentPhase.PLANNING:
                return None
            now = await self._store.now(connection)
            outcome = await withdrawal(connection, self._registry, deployment) or outcome
            if isinstance(outcome, str):
                return await self._fail(connection, deployment, outcome, now)
            if isinstance(outcome, _Delay):
                return await self._wait(connection, deployment, outcome.reason, now)
            after, next_run_at = await self._plans.store(connection, deployment, outcome, now)
            return await self._finish(connection, deployment, after, next_run_at)

    async def _make(self, deployment: VersionDeployment, needed: PlanInput) -> SealedPlan | _Delay | str:
        """Return the plan, why there can be none yet, or why there never can."""
        try:
            with self._reporter.planning(deployment):
                # Before clusters are asked: a plan that cannot be sealed would have to be made again.
                await self._secrets.check(deployment.id)
                request = await opened(needed, deployment.id, self._secrets)
                planned = await self._planner.plan(request)
                bundles = await self._secrets.seal_bundles(deployment.id, planned.bundles)
            return SealedPlan(planned.plan, bundles)
        except (ClusterUnreachable, VaultUnavailable) as error:
            return _Delay(str(error))
        except (InvalidInput, VaultError) as error:
            return str(error)
        except Exception as error:
            log.exception("a plan failed unexpectedly", deploymentId=str(deployment.id))
            return _Delay(f"{type(error).__name__}: {error}")

    async def _wait(
        self, connection: Connection, deployment: VersionDeployment, message: str, now: datetime
    ) -> _Change:
        waited = deployment.waits_for and deployment.queued_since is None
        deadline = deployment.deadline if waited else None
        deadline = deadline or now + self._settings.offline_patience
        if now >= deadline:
            return await self._fail(connection, deployment, f"no plan could be made: {message}", now)
        waiting = msgspec.structs.replace(deployment, waits_for=message, deadline=deadline, queued_since=None)
        return await self._finish(connection, deployment, waiting, min(self._soon(now), deadline))

    async def _await_approval(self, connection: Connection, deployment: VersionDeployment) -> _Change:
        now = await self._store.now(connection)
        plan = await self._store.plan(connection, deployment.id)
        assert plan is not None
        if await self._desk.granted(connection, deployment, plan, now):
            # Planned again with the stored manifests: what was approved must still be what would happen.
            after = msgspec.structs.replace(
                deployment, phase=DeploymentPhase.PLANNING, waits_for="", deadline=None
            )
            return await self._finish(connection, deployment, after, now)
        if await self._desk.expired(connection, deployment, now):
            message = "an approval expired before it was given: retry the deployment to ask again"
            return await self._fail(connection, deployment, message, now)
        return await self._finish(connection, deployment, deployment, deployment.deadline)

    async def _steer(self, connection: Connection, deployment: VersionDeployment) -> _Change:
        now = await self._store.now(connection)
        targets = await self._store.targets(connection, deployment.id)
        course = steer(deployment, targets, now)
        await self._direct(connection, course, {target.cluster_id: target for target in targets})
        if course.deployment.phase is DeploymentPhase.ROLLING_BACK is not deployment.phase:
            reason = f"rolled back by deployment {deployment.id}: {course.deployment.message}"
            await self._registry.withdraw(connection, deployment.operator_id, deployment.version, reason)
        return await self._finish(connection, deployment, course.deployment, course.next_run_at)

    async def _direct(
        self, connection: Connection, course: RolloutCourse, before: dict[Any, RolloutTarget]
    ) -> None:
        for target in course.targets.values():
            earlier = before[target.cluster_id]
            if target.step is earlier.step and target.goal is TargetGoal.ROLL_BACK:
                await self._store.direct(connection, target)
                continue
            check_step(earlier.step, target.step)
            await self._store.reset(connection, target)
            if target.step is TargetStep.ABORTED:
                installation = installed(course.deployment.version, course.deployment.chart_digest, target)
                if installation is not None:
                    await self._store.record_installation(connection, installation)

    async def _fail(
        self, connection: Connection, deployment: VersionDeployment, message: str, now: datetime
    ) -> _Change:
        await self._desk.void(connection, deployment.id, now)
        failed = deployment.ended(DeploymentPhase.FAILED, now, message)
        return await self._finish(connection, deployment, failed, None)

    async def _finish(
        self,
        connection: Connection,
        before: VersionDeployment,
        after: VersionDeployment,
        next_run_at: datetime | None,
    ) -> _Change:
        """Write a locked deployment and its history, and end the claim."""
        check_phase(before.phase, after.phase)
        await self._store.append(connection, after.id, _events(before, after))
        await self._notices.announce(connection, before, after)
        await self._store.save(connection, after, next_run_at=next_run_at, release=True)
        return _Change(before, after)

    def _soon(self, now: datetime) -> datetime:
        return now + self._settings.retry_interval


def _events(before: VersionDeployment, after: VersionDeployment) -> list[RolloutEvent]:
    events = [
        RolloutEvent("StagePassed", f"stage {number} passed")
        for number in range(before.stage + 1, after.stage + 1)
    ]
    if before.phase is not after.phase:
        cause = f": {after.message}" if after.message else ""
        events.append(RolloutEvent("PhaseChanged", f"{before.phase} → {after.phase}{cause}"))
    return events

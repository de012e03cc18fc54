"""The worker: does the next steps of one claimed cluster, and writes each outcome under the claim's fence."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from kapsa.fleet.domain.rollout.deployments import (
    ConflictPolicy,
    OfflinePolicy,
    RolloutEvent,
    VersionDeployment,
)
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.domain.rollout.targets import (
    DELETED,
    RolloutTarget,
    TargetGoal,
    TargetState,
    TargetStep,
    check_step,
)
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterGone, ClusterNotReady, ClusterRefused
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import (
    FenceLost,
    OperatorInstallation,
    RolloutClaim,
    RolloutStore,
)
from kapsa.fleet.orchestrator.ports.telemetry import UNREPORTED, RolloutReporter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.ports.vault import VaultUnavailable
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings
from kapsa.fleet.orchestrator.rollout.steps.hand_over import (
    await_stop,
    await_switch,
    start,
    stop,
    switch_webhooks,
)
from kapsa.fleet.orchestrator.rollout.steps.prepare import prepare
from kapsa.fleet.orchestrator.rollout.steps.retention import retain, retire
from kapsa.fleet.orchestrator.rollout.steps.rollback import prepare_rollback, remove, revert
from kapsa.fleet.orchestrator.rollout.steps.upgrade import upgrade
from kapsa.fleet.orchestrator.rollout.steps.validation import (
    validate,
    validate_idle,
    validate_reverted,
    watch,
)
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn
from kapsa.fleet.orchestrator.rollout.withdrawals import withdrawal

__all__ = ["ClusterWorker", "installed"]

log = structlog.get_logger()

Step = Callable[[ClusterTurn, ClusterServices], Awaitable[RolloutTarget]]

STEPS: Mapping[TargetStep, Step] = {
    TargetStep.PREPARE: prepare,
    TargetStep.UPGRADE: upgrade,
    TargetStep.VALIDATE: validate,
    TargetStep.WATCH: watch,
    TargetStep.INSTALL_NEXT: upgrade,
    TargetStep.VALIDATE_NEXT: validate_idle,
    TargetStep.AWAIT_SWITCH: await_switch,
    TargetStep.STOP_LIVE: stop,
    TargetStep.AWAIT_LIVE_STOP: await_stop,
    TargetStep.START_NEXT: start,
    TargetStep.SWITCH_WEBHOOKS: switch_webhooks,
    TargetStep.RETAIN_LIVE: retain,
    TargetStep.RETIRE_LIVE: retire,
    TargetStep.PREPARE_ROLLBACK: prepare_rollback,
    TargetStep.REVERT: revert,
    TargetStep.REMOVE: remove,
    TargetStep.STOP_NEXT: stop,
    TargetStep.AWAIT_NEXT_STOP: await_stop,
    TargetStep.START_LIVE: start,
    TargetStep.RESTORE_WEBHOOKS: switch_webhooks,
    TargetStep.VALIDATE_REVERTED: validate_reverted,
}
_OPENS = frozenset({TargetStep.PREPARE, TargetStep.UPGRADE, TargetStep.INSTALL_NEXT})
_BEFORE_START = frozenset(
    {TargetStep.PREPARE, TargetStep.UPGRADE, TargetStep.INSTALL_NEXT, TargetStep.AWAIT_SWITCH}
)
_LEAVES = frozenset({TargetStep.VALIDATE, TargetStep.WATCH, TargetStep.REVERT})
_TURNS_BACK = frozenset(
    {
        TargetState.PENDING,
        TargetState.APPLYING,
        TargetState.VALIDATING,
        TargetState.HEALTHY,
        TargetState.SKIPPED,
        TargetState.ABORTED,
    }
)
# A cluster has about fifteen steps in all; more in one claim would be a loop.
STEPS_PER_CLAIM = 40


class ClusterWorker:
    """The half of the engine that changes clusters."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        registry: FleetRegistry,
        services: ClusterServices,
        settings: EngineSettings,
        *,
        reporter: RolloutReporter = UNREPORTED,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._registry = registry
        self._services = services
        self._settings = settings
        self._reporter = reporter

    async def work(
        self, claim: RolloutClaim, guard: LeaseGuard, *, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Do steps until the cluster has to wait, the lease is lost, or this replica stops."""
        try:
            for _ in range(STEPS_PER_CLAIM):
                turn = await self._look(claim, guard)
                after = await self._step(turn)
                if not await self._save(claim, turn, after, last=stopping()):
                    return
        except (FenceLost, LeaseLost) as error:
            log.info("another replica has taken over a cluster", error=str(error), **_names(claim))

    async def _look(self, claim: RolloutClaim, guard: LeaseGuard) -> ClusterTurn:
        async with self._transactions.transaction() as connection:
            deployment, target, now = await self._store.look(connection, claim)
            opens = target.step in _OPENS
            retained = target.step is TargetStep.RETAIN_LIVE
            key = (target.cluster_id, target.operator_id)
            return ClusterTurn(
                deployment=deployment,
                target=target,
                cluster=await self._registry.cluster(connection, target.cluster_id),
                bundle=await self._store.bundle(connection, deployment.id, target.cluster_id)
                if opens
                else None,
                installation=await self._store.installation(connection, *key) if retained else None,
                held=retained and await self._store.held(connection, *key),
                now=now,
                settings=self._settings,
                guard=guard,
                left=await self._left(connection, deployment, target),
                withdrawal=await withdrawal(connection, self._registry, deployment)
                if target.step in _BEFORE_START
                else "",
                **await self._planned(connection, target),
            )

    async def _left(
        self, connection: Connection, deployment: VersionDeployment, target: RolloutTarget
    ) -> tuple[FieldConflict, ...]:
        """Return the fields that the plan leaves to their owners: gates accept them, and a rollback leaves them, too."""
        if target.step not in _LEAVES or deployment.on_conflict is not ConflictPolicy.LEAVE:
            return ()
        plan = await self._store.cluster_plan(connection, deployment.id, target.cluster_id)
        return plan.conflicts if plan is not None else ()

    async def _planned(
        self, connection: Connection, target: RolloutTarget
    ) -> dict[str, tuple[FieldConflict, ...]]:
        """Return what others owned or had added when the plan was made, for the step before the upgrade."""
        if target.step is not TargetStep.PREPARE:
            return {}
        plan = await self._store.cluster_plan(connection, target.deployment_id, target.cluster_id)
        return {} if plan is None else {"additions": plan.additions, "conflicts": plan.conflicts}

    async def _step(self, turn: ClusterTurn) -> RolloutTarget:
        """Return the target as it becomes, whatever happens in the step."""
        early = _before_step(turn)
        if early is not None:
            return early
        step = STEPS.get(turn.target.step)
        if step is None:
            return msgspec.structs.replace(turn.target, next_run_at=None)
        with self._reporter.step(turn.deployment, turn.target) as record:
            after = await self._attempt(step, turn)
            record(after)
            return after

    async def _attempt(self, step: Step, turn: ClusterTurn) -> RolloutTarget:
        try:
            return await step(turn, self._services)
        except LeaseLost:
            raise
        except ClusterGone:
            return _deleted(turn)
        except (CredentialUnavailable, VaultUnavailable) as error:
            return turn.wait_or_give_up("KeysUnavailable", str(error))
        except ClusterUnreachable as error:
            return _unreachable(turn, str(error))
        except ClusterRefused as error:
            return turn.wait_or_give_up("Refused", str(error))
        except ClusterNotReady as error:
            return turn.wait_or_give_up("NotReady", str(error))
        except Exception as error:
            log.exception("a step failed unexpectedly", step=turn.target.step.value)
            return turn.wait_or_give_up("InternalError", f"{type(error).__name__}: {error}")

    async def _save(
        self, claim: RolloutClaim, turn: ClusterTurn, after: RolloutTarget, *, last: bool
    ) -> bool:
        """Write the outcome. Return True if the next step is due now, and to be done under this claim."""
        before = turn.target
        check_step(before.step, after.step)
        due = not last and after.next_run_at is not None and after.next_run_at <= turn.now
        async with self._transactions.transaction() as connection:
            if _matters(before) != _matters(after):
                await self._store.wake(connection, claim.deployment_id, _events(before, after))
            await self._store.save_target(connection, claim, after, seen_goal=before.goal, release=not due)
            await self._record(connection, turn, after)
        if after.step is not before.step:
            self._reporter.step_changed(turn.deployment, before, after)
        return due

    async def _record(self, connection: Connection, turn: ClusterTurn, after: RolloutTarget) -> None:
        if after.step is not turn.target.step:
            installation = installed(turn.deployment.version, turn.deployment.chart_digest, after)
            if installation is not None:
                await self._store.record_installation(connection, installation)


def _before_step(turn: ClusterTurn) -> RolloutTarget | None:
    """Return the target as it becomes if its step is not to be done any more."""
    target = turn.target
    if turn.cluster is None:
        return _deleted(turn)
    if target.goal is TargetGoal.ROLL_BACK and (
        target.state in _TURNS_BACK or target.step is TargetStep.FAILED
    ):
        if target.step is TargetStep.RETIRE_LIVE:
            return None  # the step knows whether the removal has begun
        if not target.changed:
            return turn.end(TargetStep.SKIPPED, "NotBegun", "the deployment was rolled back before its turn")
        return turn.advance(TargetStep.PREPARE_ROLLBACK)
    if target.goal is TargetGoal.HOLD and target.step is TargetStep.PREPARE:
        return turn.end(TargetStep.WAIT)
    return None


def _deleted(turn: ClusterTurn) -> RolloutTarget:
    target = turn.target
    goes_back = target.goal is TargetGoal.ROLL_BACK and target.step is not TargetStep.ROLLED_BACK
    if target.step in STEPS or goes_back:
        return turn.end(TargetStep.SKIPPED, DELETED, "the cluster is no longer registered")
    return msgspec.structs.replace(target, next_run_at=None)


def _unreachable(turn: ClusterTurn, message: str) -> RolloutTarget:
    """Return the target of a cluster that does not answer. One that was not changed yet is late or skipped."""
    target = turn.target
    if target.state is not TargetState.PENDING:
        return turn.wait_or_give_up("Unreachable", message)
    if turn.deployment.on_offline is OfflinePolicy.SKIP:
        return turn.end(TargetStep.SKIPPED, "Offline", message)
    # Its own patience: what an attempt before it failed for has nothing to do with the time offline.
    since = target.offline_since or turn.now
    deadline = since + turn.settings.offline_patience
    if turn.now >= deadline:
        return turn.end(TargetStep.SKIPPED, "Offline", message)
    moment = min(turn.now + turn.settings.retry_interval, deadline)
    return turn.later(moment, message, deadline=deadline, offline_since=since)


def _matters(target: RolloutTarget) -> tuple[object, ...]:
    """Return what the deployment decides by: a change of it wakes the conductor."""
    return target.step, target.late, target.stalled, target.progress.healthy_since is None


def _events(before: RolloutTarget, after: RolloutTarget) -> list[RolloutEvent]:
    if after.stalled and not before.stalled:
        return [RolloutEvent("Stalled", after.stalled, after.cluster_name)]
    if before.step is after.step:
        return []
    cause = f": {after.message}" if after.state is TargetState.FAILED and after.message else ""
    return [RolloutEvent("StepChanged", f"{before.step} → {after.step}{cause}", after.cluster_name)]


_REVERTED = frozenset({TargetStep.VALIDATE_REVERTED, TargetStep.ROLLED_BACK})


def installed(version: str, chart_digest: str, target: RolloutTarget) -> OperatorInstallation | None:
    """Return what runs on a cluster once it has reached a step that settles this, else None."""
    key = (target.cluster_id, target.operator_id)
    took_over = target.handed_over or not target.blue_green
    if target.step is TargetStep.WATCH or (
        target.step is TargetStep.ABORTED and took_over and target.revision
    ):
        return OperatorInstallation(
            *key, target.next, target.revision, version, chart_digest, target.deployment_id
        )
    # Before it is validated: the health of a revision without the fleet's labels is read by this record.
    if target.step in _REVERTED and target.base_revision is not None:
        revision = target.revision if not target.blue_green and target.base_revision else target.base_revision
        return OperatorInstallation(*key, target.live, revision, target.base_version, target.base_digest)
    return None


def _names(claim: RolloutClaim) -> dict[str, str]:
    return {"deploymentId": str(claim.deployment_id), "clusterId": str(claim.cluster_id)}

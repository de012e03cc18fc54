"""Use cases of deployments: request, watch, pause, resume, retry, switch, abort and roll back."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any

from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy, required_approvals
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent, VersionDeployment
from kapsa.fleet.domain.rollout.plans import plan_digest
from kapsa.fleet.domain.rollout.strategies import DirectStrategy, RolloutStrategy, StageTarget, stages
from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT, check_limit, decode_position, page_of
from kapsa.fleet.orchestrator.deployment_changes import (
    DeploymentChange,
    abort,
    pause,
    resume,
    retry,
    roll_back,
    switch,
)
from kapsa.fleet.orchestrator.deployment_requests import (
    DeploymentDetails,
    DeploymentRequest,
    PlanDetails,
    RollbackStatus,
    chosen_strategy,
    requested_deployment,
    requested_target,
    sealed_request,
    select_clusters,
    target_status,
)
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.planner import PlanRequest, RolloutPlanner
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import DeploymentFilter, RolloutStore
from kapsa.fleet.orchestrator.ports.telemetry import UNREPORTED, RolloutReporter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.registry.names import check_values
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.secret_values import refuse_masks
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.orchestrator.rollout.withdrawals import WITHDRAWAL_ADVICE

__all__ = ["Deployments"]

EVENTS_AT_ONCE = 500

Decision = Callable[[VersionDeployment, list[RolloutTarget], datetime], DeploymentChange]
"""A request of a person, decided from the deployment and its clusters."""
Check = Callable[[Connection, VersionDeployment, datetime], Awaitable[None]]
"""A look at other rows, and writes to them, for the deployment as it becomes."""


class Deployments:
    """The use cases of deployments."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        desk: ApprovalDesk,
        registry: FleetRegistry,
        planner: RolloutPlanner,
        audit: AuditTrail,
        policy: ApprovalPolicy,
        secrets: OperatorSecrets,
        rollout_secrets: RolloutSecrets,
        notices: DeploymentNotices,
        *,
        reporter: RolloutReporter = UNREPORTED,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._desk = desk
        self._registry = registry
        self._planner = planner
        self._audit = audit
        self._policy = policy
        self._secrets = secrets
        self._rollout_secrets = rollout_secrets
        self._notices = notices
        self._reporter = reporter

    async def create(
        self, principal: Principal, request: DeploymentRequest, *, trace_parent: str = ""
    ) -> VersionDeployment:
        """Request a deployment. The engine plans it next.

        Raises StateConflict if the version is withdrawn, the operator is paused or being rolled back, or another
        deployment of it is active on one of the clusters.
        """
        _require_writer(principal)
        _check_request(principal, request)
        seen, request = await self._sealed(request)
        deployment_id = uuid.uuid4()
        secret_values = await self._rollout_secrets.seal_values(deployment_id, request.secret_values)
        async with self._transactions.transaction() as connection:
            operator, version, clusters, strategy = await self._resolve(connection, request)
            if (operator.id, operator.version) != (seen.id, seen.version):
                raise StateConflict(f"operator {operator.name} was changed meanwhile: send the request again")
            if await self._store.rolling_back(connection, operator.id):
                raise StateConflict(f"a rollback of {operator.name} is under way: wait until it ends")
            now = await self._store.now(connection)
            deployment = requested_deployment(
                deployment_id, request, operator, version, strategy, principal.subject, now, trace_parent
            )
            targets = [requested_target(deployment, operator, cluster) for cluster in clusters]
            await self._store.insert(connection, deployment, targets, secret_values)
            await self._record(
                connection,
                principal,
                deployment,
                "create",
                # By id: the name of a cluster must go when it is deleted, and this entry stays.
                clusters=[str(cluster.id) for cluster in clusters],
                forceReason=request.force_reason,
                windowOverrideReason=request.window_override_reason,
            )
        return deployment

    async def preview(self, principal: Principal, request: DeploymentRequest) -> PlanDetails:
        """Return the plan of a deployment without requesting it: a dry run."""
        _require_writer(principal)
        _check_request(principal, request)
        _, request = await self._sealed(request)
        async with self._transactions.transaction() as connection:
            operator, version, clusters, strategy = await self._resolve(connection, request)
            installations = {
                cluster.id: installation
                for cluster in clusters
                if (installation := await self._store.installation(connection, cluster.id, operator.id))
            }
            now = await self._store.now(connection)
        planned = await self._planner.plan(
            PlanRequest(
                operator=operator,
                version=version,
                strategy=strategy,
                clusters=tuple(clusters),
                installations=installations,
                values=request.values,
                secret_values=request.secret_values,
                on_conflict=request.on_conflict,
                on_offline=request.on_offline,
                force_reason=request.force_reason,
                window_override_reason=request.window_override_reason,
                now=now,
            )
        )
        plan = planned.plan
        return PlanDetails(plan_digest(plan), plan, required_approvals(plan, self._policy))

    async def plan(self, principal: Principal, deployment_id: uuid.UUID) -> PlanDetails:
        """Return the plan of a deployment. Raises StateConflict if it is not made yet."""
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            deployment = await self._existing(connection, deployment_id)
            plan = await self._store.plan(connection, deployment_id)
        if plan is None:
            waits_for = f": it waits for {deployment.waits_for}" if deployment.waits_for else ""
            raise StateConflict(f"deployment {deployment_id} has no plan yet{waits_for}")
        return PlanDetails(deployment.plan_digest, plan, required_approvals(plan, self._policy))

    async def page(
        self,
        principal: Principal,
        *,
        cursor: str = "",
        limit: int = DEFAULT_LIMIT,
        operator: str = "",
        phases: Iterable[DeploymentPhase] = (),
    ) -> Page[VersionDeployment]:
        """Return deployments, newest first."""
        _require_reader(principal)
        chosen = DeploymentFilter(
            operator, frozenset(phases), decode_position(cursor), check_limit(limit) + 1
        )
        async with self._transactions.transaction() as connection:
            deployments = await self._store.page(connection, chosen)
        return page_of(deployments, limit, lambda each: (each.created_at.isoformat(), str(each.id)))

    async def get(self, principal: Principal, deployment_id: uuid.UUID) -> DeploymentDetails:
        """Return a deployment with its clusters."""
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            deployment = await self._existing(connection, deployment_id)
            targets = await self._store.targets(connection, deployment_id)
        return DeploymentDetails(deployment, tuple(target_status(target) for target in targets))

    async def abort(self, principal: Principal, deployment_id: uuid.UUID) -> VersionDeployment:
        """Stop a deployment where it is. Acts under way end first; nothing is rolled back."""
        _require_writer(principal)

        async def void(connection: Connection, deployment: VersionDeployment, now: datetime) -> None:
            if not deployment.active:
                await self._desk.void(connection, deployment.id, now)

        return await self._change(principal, deployment_id, "abort", abort, void)

    async def pause(self, principal: Principal, deployment_id: uuid.UUID) -> VersionDeployment:
        """Let no further cluster begin. A failing version is still rolled back."""
        _require_writer(principal)
        return await self._change(principal, deployment_id, "pause", pause)

    async def resume(self, principal: Principal, deployment_id: uuid.UUID) -> VersionDeployment:
        """Continue a paused deployment, and give every wait that gave up another chance."""
        _require_writer(principal)

        async def check(connection: Connection, deployment: VersionDeployment, now: datetime) -> None:
            await self._check_version(connection, deployment, WITHDRAWAL_ADVICE)

        return await self._change(principal, deployment_id, "resume", resume, check)

    async def retry(
        self, principal: Principal, deployment_id: uuid.UUID, *, force_reason: str = ""
    ) -> VersionDeployment:
        """Begin another attempt on the clusters that are not finished. It is planned, and approved, again."""
        _require_writer(principal)
        _require_admin_for(principal, force_reason, "forceReason")
        forced_withdrawal = await self._withdrawal(deployment_id) if force_reason else ""

        def decide(
            deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime
        ) -> DeploymentChange:
            return retry(
                deployment,
                targets,
                now,
                by=principal.subject,
                force_reason=force_reason,
                forced_withdrawal=forced_withdrawal,
            )

        async def check(connection: Connection, deployment: VersionDeployment, now: datetime) -> None:
            await self._check_version(connection, deployment, "an admin can force it with a reason")

        return await self._change(principal, deployment_id, "retry", decide, check, forceReason=force_reason)

    async def switch(self, principal: Principal, deployment_id: uuid.UUID) -> VersionDeployment:
        """Let a blue-green deployment hand over once its new release has validated."""
        _require_writer(principal)
        return await self._change(principal, deployment_id, "switch", switch)

    async def rollback(
        self, principal: Principal, deployment_id: uuid.UUID, *, reason: str
    ) -> VersionDeployment:
        """Return every cluster that the deployment changed to the version before, finished ones too.

        Raises StateConflict if a later deployment has changed one of them.
        """
        if not principal.has(Role.ADMIN):
            raise NotAllowed("only an admin may roll back a deployment")
        if not reason.strip():
            raise InvalidInput(
                "reason is needed", InvalidField("/reason", "must say why the deployment is rolled back")
            )

        def decide(
            deployment: VersionDeployment, targets: list[RolloutTarget], now: datetime
        ) -> DeploymentChange:
            return roll_back(deployment, targets, now, reason=reason)

        async def check(connection: Connection, deployment: VersionDeployment, now: datetime) -> None:
            await self._check_untouched(connection, deployment)
            cause = f"rolled back by deployment {deployment.id}: {reason}"
            await self._registry.withdraw(connection, deployment.operator_id, deployment.version, cause)

        return await self._change(principal, deployment_id, "rollback", decide, check, reason=reason)

    async def rollback_status(self, principal: Principal, deployment_id: uuid.UUID) -> RollbackStatus:
        """Return how far a rollback is. Raises UnknownObject if there was none."""
        details = await self.get(principal, deployment_id)
        deployment = details.deployment
        if deployment.rollback_started_at is None:
            raise UnknownObject(f"deployment {deployment_id} was never rolled back")
        return RollbackStatus(
            deployment_id=deployment_id,
            phase=deployment.phase,
            reason=deployment.message,
            started_at=deployment.rollback_started_at,
            finished_at=deployment.finished_at,
            clusters=details.clusters,
        )

    async def events(
        self, principal: Principal, deployment_id: uuid.UUID, *, after: int = 0, limit: int = EVENTS_AT_ONCE
    ) -> tuple[RolloutEvent, ...]:
        """Return the history after a sequence number, oldest first."""
        _require_reader(principal)
        async with self._transactions.transaction() as connection:
            await self._existing(connection, deployment_id)
            limit = min(max(limit, 1), EVENTS_AT_ONCE)
            return tuple(await self._store.events(connection, deployment_id, after=after, limit=limit))

    async def _change(
        self,
        principal: Principal,
        deployment_id: uuid.UUID,
        action: str,
        decide: Decision,
        check: Check | None = None,
        **payload: Any,
    ) -> VersionDeployment:
        """Change a deployment and wake the engine, with an audit entry, in one transaction."""
        async with self._transactions.transaction() as connection:
            deployment = await self._store.lock(connection, deployment_id)
            targets = await self._store.targets(connection, deployment_id)
            now = await self._store.now(connection)
            changed = decide(deployment, targets, now)
            if check is not None:
                await check(connection, changed.deployment, now)
            await self._apply(connection, principal, deployment, changed, now)
            await self._record(connection, principal, changed.deployment, action, **payload)
        if deployment.phase is not changed.deployment.phase:
            self._reporter.phase_changed(deployment, changed.deployment)
        return changed.deployment

    async def _apply(
        self,
        connection: Connection,
        principal: Principal,
        before: VersionDeployment,
        changed: DeploymentChange,
        now: datetime,
    ) -> None:
        after = changed.deployment
        await self._store.save(connection, after, next_run_at=now, release=before.phase is not after.phase)
        for target in changed.reset:
            await self._store.reset(connection, target)
        for target in changed.due:
            await self._store.direct(connection, target)
        event = RolloutEvent(changed.kind, changed.message, actor=principal.subject)
        await self._store.append(connection, after.id, [event])
        await self._notices.announce(connection, before, after)

    async def _resolve(
        self, connection: Connection, request: DeploymentRequest
    ) -> tuple[ManagedOperator, OperatorVersion, list[ManagedCluster], RolloutStrategy]:
        operator = await self._registry.operator(connection, request.operator)
        if operator is None:
            message = f"no operator is named {request.operator!r}"
            raise InvalidInput(message, InvalidField("/operator", message))
        version = await self._registry.version(connection, operator.id, request.version)
        if version is None:
            message = f"{operator.name} has no version {request.version!r}"
            raise InvalidInput(message, InvalidField("/version", message))
        if operator.paused_reason:
            raise StateConflict(f"new deployments of {operator.name} are paused: {operator.paused_reason}")
        if version.withdrawn_reason and not request.force_reason:
            raise StateConflict(
                f"version {version.version} of {operator.name} is withdrawn: {version.withdrawn_reason}; "
                "an admin can force it with a reason"
            )
        clusters = select_clusters(request.targets, await self._registry.clusters(connection))
        strategy = chosen_strategy(request)
        stages(strategy, [StageTarget(cluster.name, cluster.environment) for cluster in clusters])
        _check_direct(strategy, clusters, request.force_reason)
        return operator, version, clusters, strategy

    async def _sealed(self, request: DeploymentRequest) -> tuple[ManagedOperator, DeploymentRequest]:
        """Return the operator, and the request with what shows one of its secrets among the secret values."""
        async with self._transactions.transaction() as connection:
            operator, *_ = await self._resolve(connection, request)
            stored = await self._secrets.stored_values(connection, operator.id)
        secret = await self._secrets.open_values(operator.id, stored)
        return operator, await asyncio.to_thread(sealed_request, request, secret)

    async def _withdrawal(self, deployment_id: uuid.UUID) -> str:
        """Return the reason for which the version of a deployment is withdrawn; empty if it is not."""
        async with self._transactions.transaction() as connection:
            deployment = await self._existing(connection, deployment_id)
            version = await self._registry.version(connection, deployment.operator_id, deployment.version)
        return version.withdrawn_reason if version is not None else ""

    async def _check_version(
        self, connection: Connection, deployment: VersionDeployment, advice: str
    ) -> None:
        version = await self._registry.version(connection, deployment.operator_id, deployment.version)
        if version is None:
            raise StateConflict(f"{deployment.operator_name} has no version {deployment.version} any more")
        if stopped := deployment.stopped_by(version.withdrawn_reason):
            raise StateConflict(f"{stopped}; {advice}")

    async def _check_untouched(self, connection: Connection, deployment: VersionDeployment) -> None:
        """Raise StateConflict if a later deployment has changed a cluster that this one would roll back."""
        for target in await self._store.targets(connection, deployment.id):
            if target.changed and target.revision and await self._overtaken(connection, deployment, target):
                raise StateConflict(
                    f"a later deployment has changed {target.cluster_name}: roll that one back"
                )

    async def _overtaken(
        self, connection: Connection, deployment: VersionDeployment, target: RolloutTarget
    ) -> bool:
        """Return whether a deployment that began after this one has left its release on a cluster.

        Until a cluster has passed its gate, the deployment before is the one that left what runs there.
        """
        present = await self._store.installation(connection, target.cluster_id, target.operator_id)
        if present is None or present.deployment_id in (None, deployment.id):
            return False
        other = await self._store.deployment(connection, present.deployment_id)
        return other is not None and _began(other) > _began(deployment)

    async def _existing(self, connection: Connection, deployment_id: uuid.UUID) -> VersionDeployment:
        deployment = await self._store.deployment(connection, deployment_id)
        if deployment is None:
            raise UnknownObject(f"no deployment has the id {deployment_id}")
        return deployment

    async def _record(
        self,
        connection: Connection,
        principal: Principal,
        deployment: VersionDeployment,
        action: str,
        **payload: Any,
    ) -> None:
        details = {
            "operator": deployment.operator_name,
            "version": deployment.version,
            "phase": deployment.phase.value,
            **{key: value for key, value in payload.items() if value},
        }
        entry = AuditEntry(
            actor=principal.subject,
            action=f"deployment.{action}",
            object_kind="deployment",
            object_id=str(deployment.id),
            payload=details,
        )
        await self._audit.record(connection, entry)


def _check_request(principal: Principal, request: DeploymentRequest) -> None:
    _require_admin_for(principal, request.force_reason, "forceReason")
    _require_admin_for(principal, request.window_override_reason, "windowOverrideReason")
    for field, values in (("values", request.values), ("secretValues", request.secret_values)):
        check_values(field, values)
        refuse_masks(field, values)


def _check_direct(strategy: RolloutStrategy, clusters: Iterable[ManagedCluster], force_reason: str) -> None:
    production = any(cluster.environment is ClusterEnvironment.PRODUCTION for cluster in clusters)
    if isinstance(strategy, DirectStrategy) and production and not force_reason:
        message = (
            "Direct is refused in Production: use Canary or Rolling, or let an admin force it with a reason"
        )
        raise InvalidInput(message, InvalidField("/strategy", message))


def _began(deployment: VersionDeployment) -> datetime:
    return deployment.started_at or deployment.created_at


def _require_writer(principal: Principal) -> None:
    if not principal.has(Role.OPERATOR, Role.ADMIN):
        raise NotAllowed("only an Operator or an Admin may change deployments")


def _require_reader(principal: Principal) -> None:
    if not principal.roles:
        raise NotAllowed("a role is needed to see deployments")


def _require_admin_for(principal: Principal, reason: str, field: str) -> None:
    if reason and not principal.has(Role.ADMIN):
        raise NotAllowed(f"only an admin may use {field}")

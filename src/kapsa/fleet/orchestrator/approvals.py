"""Use cases of approvals: list, approve, reject."""

import uuid
from collections.abc import Iterable
from datetime import datetime

from kapsa.fleet.domain.errors import NotAllowed, UnknownObject
from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.domain.rollout.approvals import ApprovalRequest, ApprovalState, check_decision, decided
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent, VersionDeployment
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT, check_limit, decode_position, page_of
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.rollouts import ApprovalStore, RolloutStore
from kapsa.fleet.orchestrator.ports.telemetry import UNREPORTED, RolloutReporter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices

__all__ = ["Approvals"]

_OPEN = frozenset({ApprovalState.PENDING, ApprovalState.APPROVED})


class Approvals:
    """The use cases of approvals."""

    def __init__(
        self,
        transactions: Transactions,
        store: RolloutStore,
        approvals: ApprovalStore,
        audit: AuditTrail,
        notices: DeploymentNotices,
        *,
        reporter: RolloutReporter = UNREPORTED,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._approvals = approvals
        self._audit = audit
        self._notices = notices
        self._reporter = reporter

    async def page(
        self,
        principal: Principal,
        *,
        states: Iterable[ApprovalState] = (ApprovalState.PENDING,),
        cursor: str = "",
        limit: int = DEFAULT_LIMIT,
    ) -> Page[ApprovalRequest]:
        """Return approvals, newest first: those that are pending, unless other states are asked for."""
        if not principal.roles:
            raise NotAllowed("a role is needed to see approvals")
        async with self._transactions.transaction() as connection:
            requests = await self._approvals.page(
                connection,
                states=frozenset(states),
                before=decode_position(cursor),
                limit=check_limit(limit) + 1,
            )
        return page_of(requests, limit, lambda each: (each.created_at.isoformat(), str(each.id)))

    async def approve(
        self, principal: Principal, approval_id: uuid.UUID, *, comment: str = ""
    ) -> ApprovalRequest:
        """Agree to the plan that the request is bound to. With the last agreement the deployment begins."""
        return await self._decide(principal, approval_id, ApprovalState.APPROVED, comment)

    async def reject(
        self, principal: Principal, approval_id: uuid.UUID, *, comment: str = ""
    ) -> ApprovalRequest:
        """Refuse a plan. The deployment ends and never runs."""
        return await self._decide(principal, approval_id, ApprovalState.REJECTED, comment)

    async def _decide(
        self, principal: Principal, approval_id: uuid.UUID, state: ApprovalState, comment: str
    ) -> ApprovalRequest:
        async with self._transactions.transaction() as connection:
            deployment_id = (await self._existing(connection, approval_id)).deployment_id
            deployment = await self._store.lock(connection, deployment_id)
            request = await self._existing(connection, approval_id)  # as it is under the lock
            now = await self._store.now(connection)
            others = await self._approvals.of(connection, deployment_id)
            check_decision(request, principal, digest=deployment.plan_digest, others=others, now=now)
            settled = decided(request, state, now, by=principal.subject, comment=comment)
            await self._approvals.save(connection, settled)
            ended = deployment
            if state is ApprovalState.REJECTED:
                ended = await self._end(connection, deployment, others, settled, now)
            event = RolloutEvent(state.value, _message(settled), actor=principal.subject)
            await self._store.wake(connection, deployment_id, [event])
            await self._record(connection, principal, settled)
        if ended.phase is not deployment.phase:
            self._reporter.phase_changed(deployment, ended)
        return settled

    async def _end(
        self,
        connection: Connection,
        deployment: VersionDeployment,
        others: Iterable[ApprovalRequest],
        rejected: ApprovalRequest,
        now: datetime,
    ) -> VersionDeployment:
        for other in others:
            if other.id != rejected.id and other.state in _OPEN:
                await self._approvals.save(connection, decided(other, ApprovalState.VOID, now))
        message = f"rejected by {rejected.decided_by}" + (f": {rejected.comment}" if rejected.comment else "")
        ended = deployment.ended(DeploymentPhase.REJECTED, now, message)
        await self._store.save(connection, ended, next_run_at=None, release=True)
        await self._notices.announce(connection, deployment, ended)
        return ended

    async def _existing(self, connection: Connection, approval_id: uuid.UUID) -> ApprovalRequest:
        request = await self._approvals.get(connection, approval_id)
        if request is None:
            raise UnknownObject(f"no approval has the id {approval_id}")
        return request

    async def _record(self, connection: Connection, principal: Principal, request: ApprovalRequest) -> None:
        verb = "approve" if request.state is ApprovalState.APPROVED else "reject"
        entry = AuditEntry(
            actor=principal.subject,
            action=f"approval.{verb}",
            object_kind="approval",
            object_id=str(request.id),
            payload={
                "deployment": str(request.deployment_id),
                "kind": request.kind.value,
                "environment": request.environment.value,
                "level": request.level,
                "digest": request.digest,
                "comment": request.comment,
            },
        )
        await self._audit.record(connection, entry)


def _message(request: ApprovalRequest) -> str:
    comment = f": {request.comment}" if request.comment else ""
    return f"{request.kind} in {request.environment}, level {request.level}, {request.state}{comment}"

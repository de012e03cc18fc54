"""Requests for approval: made with a plan, announced by mail, and settled when the plan runs or changes."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import (
    ApprovalPolicy,
    ApprovalRequest,
    ApprovalState,
    RequiredApproval,
    decided,
    granted,
    outdated,
    required_approvals,
)
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.plans import RolloutPlan
from kapsa.fleet.orchestrator.ports.outbox import MailMessage, Outbox, WebhookEvent
from kapsa.fleet.orchestrator.ports.rollouts import ApprovalStore
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["ApprovalDesk", "ApprovalMail"]

_OPEN = frozenset({ApprovalState.PENDING, ApprovalState.APPROVED})


class ApprovalMail(msgspec.Struct, frozen=True):
    """The people who are asked."""

    recipients: Mapping[ClusterEnvironment, tuple[str, ...]] = {}
    """Addresses for each environment. Without any, nobody gets an email: watch the list of approvals."""
    url: str = ""
    """The address of the manager, for links."""


class ApprovalDesk:
    """The keeper of a deployment's approvals, in the transactions of the rollout engine."""

    def __init__(
        self, approvals: ApprovalStore, outbox: Outbox, policy: ApprovalPolicy, mail: ApprovalMail
    ) -> None:
        self._approvals = approvals
        self._outbox = outbox
        self._policy = policy
        self._mail = mail

    async def use(
        self, connection: Connection, deployment: VersionDeployment, plan: RolloutPlan, now: datetime
    ) -> None:
        """Use up the approvals of a plan that begins to run."""
        for request in await self._approvals.of(connection, deployment.id):
            if request.digest == deployment.plan_digest and request.state is ApprovalState.APPROVED:
                await self._approvals.save(connection, decided(request, ApprovalState.USED, now))

    async def granted(
        self, connection: Connection, deployment: VersionDeployment, plan: RolloutPlan, now: datetime
    ) -> bool:
        """Return whether a plan has every approval that it needs. Settles requests for other plans."""
        requests = await self._settle(connection, deployment, now)
        needed = required_approvals(plan, self._policy)
        return granted(needed, requests, digest=deployment.plan_digest, now=now)

    async def request(
        self, connection: Connection, deployment: VersionDeployment, plan: RolloutPlan, now: datetime
    ) -> list[ApprovalRequest]:
        """Request the approvals that a plan needs and that are not requested yet. Return all that are open."""
        present = [
            request
            for request in await self._approvals.of(connection, deployment.id)
            if request.digest == deployment.plan_digest and request.state in _OPEN
        ]
        missing = set(required_approvals(plan, self._policy)) - {request.required for request in present}
        made = [self._made(deployment, each, now) for each in sorted(missing)]
        await self._approvals.insert(connection, made)
        for request in made:
            await self._announce(connection, deployment, request)
        return present + made

    async def void(self, connection: Connection, deployment_id: uuid.UUID, now: datetime) -> None:
        """Void the open requests of a deployment that ends."""
        for request in await self._approvals.of(connection, deployment_id):
            if request.state in _OPEN:
                await self._approvals.save(connection, decided(request, ApprovalState.VOID, now))

    async def expired(self, connection: Connection, deployment: VersionDeployment, now: datetime) -> bool:
        """Return whether a request of the present plan has expired. Settles those that have."""
        requests = await self._settle(connection, deployment, now)
        return any(
            request.state is ApprovalState.EXPIRED and request.digest == deployment.plan_digest
            for request in requests
        )

    async def _settle(
        self, connection: Connection, deployment: VersionDeployment, now: datetime
    ) -> list[ApprovalRequest]:
        result: list[ApprovalRequest] = []
        for request in await self._approvals.of(connection, deployment.id):
            state = outdated(request, digest=deployment.plan_digest, now=now)
            if state is not None:
                request = decided(request, state, now)
                await self._approvals.save(connection, request)
            result.append(request)
        return result

    def _made(
        self, deployment: VersionDeployment, needed: RequiredApproval, now: datetime
    ) -> ApprovalRequest:
        return ApprovalRequest(
            id=uuid.uuid4(),
            deployment_id=deployment.id,
            kind=needed.kind,
            environment=needed.environment,
            digest=deployment.plan_digest,
            requested_by=deployment.requested_by,
            retried_by=deployment.retried_by,
            created_at=now,
            expires_at=now + self._policy.lifetime,
            level=needed.level,
        )

    async def _announce(
        self, connection: Connection, deployment: VersionDeployment, request: ApprovalRequest
    ) -> None:
        subject = f"Approval needed: {deployment.operator_name} {deployment.version} in {request.environment}"
        to = self._mail.recipients.get(request.environment, ())
        if to:
            text = "\n".join(_lines(deployment, request, self._mail.url))
            await self._outbox.put(connection, MailMessage(to, subject, text))
        data = {
            "approval": str(request.id),
            "deployment": str(deployment.id),
            "operator": deployment.operator_name,
            "version": deployment.version,
            "environment": request.environment.value,
            "kind": request.kind.value,
            "level": request.level,
            "digest": request.digest,
        }
        await self._outbox.put(connection, WebhookEvent("approval.requested", data))


def _lines(deployment: VersionDeployment, request: ApprovalRequest, url: str) -> Iterable[str]:
    yield f"{deployment.requested_by} asks to deploy {deployment.operator_name} {deployment.version}."
    yield ""
    yield f"Reason for the approval: {request.kind} in {request.environment}, level {request.level}"
    yield f"Plan: {request.digest}"
    yield f"Expires: {request.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    if url:
        yield ""
        yield f"Plan: {url}/api/v1/deployments/{deployment.id}/plan"
        yield f"Decide: {url}/api/v1/approvals/{request.id}/approve or /reject"

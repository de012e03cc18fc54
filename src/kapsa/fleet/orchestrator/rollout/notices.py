"""Notices of deployments: events for webhooks when a deployment ends, stops or turns back."""

from typing import Any

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.orchestrator.ports.outbox import Outbox, WebhookEvent
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["DEPLOYMENT_NOTICES", "DeploymentNotices"]

DEPLOYMENT_NOTICES = {
    DeploymentPhase.COMPLETED: "deployment.completed",
    DeploymentPhase.PAUSED: "deployment.paused",
    DeploymentPhase.ROLLING_BACK: "deployment.rollingBack",
    DeploymentPhase.ROLLED_BACK: "deployment.rolledBack",
    DeploymentPhase.ABORTED: "deployment.aborted",
    DeploymentPhase.REJECTED: "deployment.rejected",
    DeploymentPhase.FAILED: "deployment.failed",
}
"""The type of the event for each phase that people learn of."""


class DeploymentNotices:
    """Notices of what the engine decides and of what people ask for: others wait for the same deployment."""

    def __init__(self, outbox: Outbox, url: str = "") -> None:
        self._outbox = outbox
        self._url = url

    async def announce(
        self, connection: Connection, before: VersionDeployment, after: VersionDeployment
    ) -> None:
        """Put an event into the outbox if the phase changes to one of interest, in the caller's transaction."""
        event = DEPLOYMENT_NOTICES.get(after.phase)
        if event is None or before.phase is after.phase:
            return
        # The cause may quote an object of a tenant. It is read over the API, by those who may.
        data: dict[str, Any] = {
            "deployment": str(after.id),
            "operator": after.operator_name,
            "version": after.version,
            "phase": after.phase.value,
            "previousPhase": before.phase.value,
            "attempt": after.attempt,
            "requestedBy": after.requested_by,
        }
        if self._url:
            data["url"] = f"{self._url}/api/v1/deployments/{after.id}"
        await self._outbox.put(connection, WebhookEvent(event, data))

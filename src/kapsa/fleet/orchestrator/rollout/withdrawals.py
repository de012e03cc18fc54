"""Withdrawals of versions: what stops the other deployments of a version that was rolled back."""

from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.rollout.turn import ClusterTurn

__all__ = ["WITHDRAWAL_ADVICE", "stall_if_withdrawn", "withdrawal"]

WITHDRAWAL_ADVICE = "abort the deployment or roll it back; an admin can retry it with a forceReason"


async def withdrawal(connection: Connection, registry: FleetRegistry, deployment: VersionDeployment) -> str:
    """Return the sentence that stops a deployment whose version was withdrawn since; empty if nothing does."""
    version = await registry.version(connection, deployment.operator_id, deployment.version)
    return deployment.stopped_by(version.withdrawn_reason) if version is not None else ""


def stall_if_withdrawn(turn: ClusterTurn) -> RolloutTarget | None:
    """Return the target with a stall if its version must not start here any more: it failed elsewhere."""
    if not turn.withdrawal:
        return None
    return turn.stall("VersionWithdrawn", f"{turn.withdrawal}; {WITHDRAWAL_ADVICE}")

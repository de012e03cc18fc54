"""The approved bytes for a cluster: opened for the steps that try or apply them, and only if they are those of the plan."""

import hashlib

from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.ports.vault import VaultError, VaultUnavailable
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices, ClusterTurn

__all__ = ["approved_bundle", "opened_bundle"]


async def approved_bundle(turn: ClusterTurn, services: ClusterServices) -> ReleaseBundle | RolloutTarget:
    """Return what was approved for the cluster, or the target with a stall if that cannot be applied any more."""
    try:
        bundle = await opened_bundle(turn, services)
    except VaultUnavailable:
        raise  # a wait, as for a credential that cannot be opened
    except VaultError as error:
        message = f"the stored manifest cannot be opened: {error}. Abort the deployment, then retry it"
        return turn.stall("ManifestUnreadable", message)
    if bundle is None or _digest(bundle.manifest) != turn.target.manifest_digest:
        message = "the stored manifest is not the one that was planned: abort the deployment, then retry it"
        return turn.stall("ManifestChanged", message)
    return bundle


async def opened_bundle(turn: ClusterTurn, services: ClusterServices) -> ReleaseBundle | None:
    """Return what is stored for the cluster. Raises VaultError if it cannot be opened."""
    if turn.bundle is None:
        return None
    return await services.secrets.open_bundle(turn.deployment.id, turn.target.cluster_id, turn.bundle)


def _digest(manifest: bytes) -> str:
    return "sha256:" + hashlib.sha256(manifest).hexdigest()

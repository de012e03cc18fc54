"""The input of a plan, read in one transaction."""

import uuid

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState, TargetStep
from kapsa.fleet.orchestrator.planner import PlanRequest
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation, ReleaseBundle, RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["gather", "remaining"]


def remaining(targets: list[RolloutTarget]) -> list[RolloutTarget]:
    """Return the clusters that an attempt has to change: not those that an earlier attempt finished."""
    return [
        target for target in targets if target.step is TargetStep.WAIT or target.state is TargetState.PENDING
    ]


async def gather(
    connection: Connection, store: RolloutStore, registry: FleetRegistry, deployment: VersionDeployment
) -> PlanRequest | str:
    """Return the input of a deployment's plan, or one sentence that says why there can be none."""
    operator = await registry.operator(connection, deployment.operator_name)
    if operator is None or operator.id != deployment.operator_id:
        return f"the operator {deployment.operator_name} is no longer registered"
    version = await registry.version(connection, operator.id, deployment.version)
    if version is None:
        return f"version {deployment.version} of {operator.name} no longer exists"
    if version.withdrawn_reason and not deployment.force_reason:
        return f"version {deployment.version} of {operator.name} is withdrawn: {version.withdrawn_reason}"
    clusters: list[ManagedCluster] = []
    installations: dict[uuid.UUID, OperatorInstallation] = {}
    bundles: dict[uuid.UUID, ReleaseBundle] = {}
    for target in remaining(await store.targets(connection, deployment.id)):
        cluster = await registry.cluster(connection, target.cluster_id)
        if cluster is None:
            continue
        clusters.append(cluster)
        installation = await store.installation(connection, cluster.id, operator.id)
        if installation is not None:
            installations[cluster.id] = installation
        bundle = await store.bundle(connection, deployment.id, cluster.id)
        if bundle is not None:
            bundles[cluster.id] = bundle
    if not clusters:
        return "no cluster is left to deploy to"
    return PlanRequest(
        operator=operator,
        version=version,
        strategy=deployment.strategy,
        clusters=tuple(clusters),
        installations=installations,
        values=deployment.values,
        secret_values=await store.secret_values(connection, deployment.id),
        on_conflict=deployment.on_conflict,
        on_offline=deployment.on_offline,
        force_reason=deployment.force_reason,
        window_override_reason=deployment.window_override_reason,
        earlier=await store.plan(connection, deployment.id),
        bundles=bundles,
        now=await store.now(connection),
    )

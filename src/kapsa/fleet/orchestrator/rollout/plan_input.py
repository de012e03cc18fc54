"""The input of a plan: read in one transaction, and opened after it."""

import uuid

import msgspec

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget, TargetState, TargetStep
from kapsa.fleet.orchestrator.planner import PlanRequest
from kapsa.fleet.orchestrator.ports.plan_sources import FleetRegistry
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation, RolloutStore
from kapsa.fleet.orchestrator.ports.transactions import Connection
from kapsa.fleet.orchestrator.ports.vault import SealedSecret
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets

__all__ = ["PlanInput", "gather", "opened", "remaining"]


class PlanInput(msgspec.Struct, frozen=True):
    """A request for a plan, without what is sealed, and what is sealed."""

    request: PlanRequest
    bundles: dict[uuid.UUID, SealedSecret]
    """By cluster: what the plan before would apply."""
    secret_values: SealedSecret | None


def remaining(targets: list[RolloutTarget]) -> list[RolloutTarget]:
    """Return the clusters that an attempt has to change: not those that an earlier attempt finished."""
    return [
        target for target in targets if target.step is TargetStep.WAIT or target.state is TargetState.PENDING
    ]


async def gather(
    connection: Connection, store: RolloutStore, registry: FleetRegistry, deployment: VersionDeployment
) -> PlanInput | str:
    """Return the input of a deployment's plan, or one sentence that says why there can be none."""
    operator = await registry.operator(connection, deployment.operator_name)
    if operator is None or operator.id != deployment.operator_id:
        return f"the operator {deployment.operator_name} is no longer registered"
    version = await registry.version(connection, operator.id, deployment.version)
    if version is None:
        return f"version {deployment.version} of {operator.name} no longer exists"
    if stopped := deployment.stopped_by(version.withdrawn_reason):
        return stopped
    clusters: list[ManagedCluster] = []
    installations: dict[uuid.UUID, OperatorInstallation] = {}
    bundles: dict[uuid.UUID, SealedSecret] = {}
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
    request = PlanRequest(
        operator=operator,
        version=version,
        strategy=deployment.strategy,
        clusters=tuple(clusters),
        installations=installations,
        values=deployment.values,
        on_conflict=deployment.on_conflict,
        on_offline=deployment.on_offline,
        force_reason=deployment.force_reason,
        window_override_reason=deployment.window_override_reason,
        earlier=await store.plan(connection, deployment.id),
        now=await store.now(connection),
    )
    return PlanInput(request, bundles, await store.secret_values(connection, deployment.id))


async def opened(needed: PlanInput, deployment_id: uuid.UUID, secrets: RolloutSecrets) -> PlanRequest:
    """Return the request with what was sealed. A manifest that can never be opened again is left out: it is rendered.

    Raises VaultUnavailable if the keys cannot be used now, and VaultError if the secret values are lost.
    """
    return msgspec.structs.replace(
        needed.request,
        secret_values=await secrets.open_values(deployment_id, needed.secret_values),
        bundles=await secrets.open_bundles(deployment_id, needed.bundles),
    )

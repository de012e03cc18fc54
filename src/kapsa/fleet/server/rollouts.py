"""The rollouts of a manager: use cases of deployments and approvals, and the engine behind them."""

import os
import socket
from datetime import timedelta

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy
from kapsa.fleet.infrastructure.charts.release_renderer import StoredChartRenderer
from kapsa.fleet.infrastructure.health.observer import OperatorObserver
from kapsa.fleet.infrastructure.helm.gated_helm import GatedHelm
from kapsa.fleet.infrastructure.operations.cluster_operations import ManagedClusterOperations
from kapsa.fleet.infrastructure.operations.leased_clients import LeasedClients
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.registry.rollout_registry import PostgresRegistry
from kapsa.fleet.infrastructure.postgres.rollouts.approvals import PostgresApprovals
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.infrastructure.preflight.manifest_trials import DryRunTrials
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk, ApprovalMail
from kapsa.fleet.orchestrator.approvals import Approvals
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges
from kapsa.fleet.orchestrator.deployments import Deployments
from kapsa.fleet.orchestrator.operator_values import RegisteredValues
from kapsa.fleet.orchestrator.planner import RolloutPlanner
from kapsa.fleet.orchestrator.ports.audit import AuditTrail
from kapsa.fleet.orchestrator.ports.outbox import Outbox
from kapsa.fleet.orchestrator.ports.vault import KeyVault
from kapsa.fleet.orchestrator.preflights import ClusterPreflights
from kapsa.fleet.orchestrator.rollout.conductor import RolloutConductor
from kapsa.fleet.orchestrator.rollout.engine import RolloutEngine
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices
from kapsa.fleet.orchestrator.rollout.worker import ClusterWorker
from kapsa.fleet.server.registry import RegistryServices
from kapsa.fleet.server.telemetry import TelemetryServices
from kapsa.fleet.settings import FleetSettings

__all__ = ["RolloutServices", "approval_policy", "build_rollouts"]


class RolloutServices(msgspec.Struct, frozen=True, kw_only=True):
    """The use cases of deployments and approvals, and the engine that plans and runs them."""

    deployments: Deployments
    approvals: Approvals
    engine: RolloutEngine
    helm: GatedHelm

    async def close(self) -> None:
        """Stop what Helm talks to, after the engine and before the clients of clusters."""
        await self.helm.close()


def build_rollouts(
    settings: FleetSettings,
    database: Database,
    vault: KeyVault,
    audit: AuditTrail,
    outbox: Outbox,
    registry: RegistryServices,
    observer: OperatorObserver,
    telemetry: TelemetryServices,
) -> RolloutServices:
    """Build the rollouts on the registry of a manager."""
    store, approvals, rows = PostgresRollouts(), PostgresApprovals(), PostgresRegistry()
    secrets, policy = RolloutSecrets(vault), approval_policy(settings)
    recipients = dict.fromkeys(ClusterEnvironment, settings.approval_recipients)
    url = settings.public_url.rstrip("/")
    desk = ApprovalDesk(approvals, outbox, policy, ApprovalMail(recipients, url))
    notices = DeploymentNotices(outbox, url)
    trials = DryRunTrials(registry.clients.client)
    preflights = _preflights(database, registry, audit, telemetry, trials)
    planner = _planner(database, registry, preflights, trials)
    chosen = EngineSettings(
        owner=f"{socket.gethostname()}-{os.getpid()}",
        approvals=policy,
        max_concurrent_deployments=settings.max_concurrent_deployments,
        slots=settings.slots,
        check_interval=timedelta(seconds=settings.health_check_seconds),
        retry_interval=timedelta(seconds=min(10, settings.health_check_seconds)),
    )
    conductor = RolloutConductor(
        database, store, rows, planner, desk, notices, secrets, chosen, reporter=telemetry.rollouts
    )
    helm = GatedHelm(database, PostgresOperators(), registry.clients.client, audit, metrics=telemetry.helm)
    operations = _operations(database, registry, audit, store, observer)
    services = ClusterServices(helm, operations, secrets, preflights)
    worker = ClusterWorker(database, store, rows, services, chosen, reporter=telemetry.rollouts)
    return RolloutServices(
        deployments=Deployments(
            database,
            store,
            desk,
            rows,
            planner,
            audit,
            policy,
            registry.operator_secrets,
            secrets,
            notices,
            reporter=telemetry.rollouts,
        ),
        approvals=Approvals(database, store, approvals, audit, notices, reporter=telemetry.rollouts),
        engine=RolloutEngine(database, store, conductor, worker, chosen),
        helm=helm,
    )


def approval_policy(settings: FleetSettings) -> ApprovalPolicy:
    """Return the approvals that the settings ask for."""
    return ApprovalPolicy(
        levels=settings.approval_levels,
        environments=frozenset(map(ClusterEnvironment, settings.approval_environments)),
        breaking_crds=settings.approval_breaking_crds,
        version_upgrades=settings.approval_version_upgrades,
        lifetime=timedelta(hours=settings.approval_hours),
    )


def _operations(
    database: Database,
    registry: RegistryServices,
    audit: AuditTrail,
    store: PostgresRollouts,
    observer: OperatorObserver,
) -> ManagedClusterOperations:
    clients = LeasedClients(registry.clients.client, database, audit)
    return ManagedClusterOperations(clients, database, PostgresOperators(), store, observer)


def _preflights(
    database: Database,
    registry: RegistryServices,
    audit: AuditTrail,
    telemetry: TelemetryServices,
    trials: DryRunTrials,
) -> ClusterPreflights:
    return ClusterPreflights(
        database,
        PostgresOperators(),
        registry.gateway,
        registry.credentials,
        ClusterChanges(registry.resources),
        trials,
        audit,
        meter=telemetry.registry,
    )


def _planner(
    database: Database, registry: RegistryServices, preflights: ClusterPreflights, trials: DryRunTrials
) -> RolloutPlanner:
    return RolloutPlanner(
        RegisteredValues(database, registry.operator_secrets, registry.adoptions),
        StoredChartRenderer(database, PostgresOperators(), trials.api_versions),
        preflights,
    )

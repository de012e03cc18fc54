"""A fleet in virtual time: a real database, doubles of Helm and clusters, and as many engines as a test wants."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.domain.registry.clusters import (
    ClusterCondition,
    ClusterEnvironment,
    ClusterHealth,
    ManagedCluster,
)
from kapsa.fleet.domain.registry.operators import ChartFacts, ManagedOperator, OperatorVersion, UploadedChart
from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy, ApprovalState
from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.releases import ReleaseRef, latest_record
from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.registry.rollout_registry import PostgresRegistry
from kapsa.fleet.infrastructure.postgres.rollouts.approvals import PostgresApprovals
from kapsa.fleet.infrastructure.postgres.rollouts.erasure import pseudonym
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster as cluster_table
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk, ApprovalMail
from kapsa.fleet.orchestrator.approvals import Approvals
from kapsa.fleet.orchestrator.deployment_requests import ClusterSelector, DeploymentRequest, StrategyName
from kapsa.fleet.orchestrator.deployments import Deployments
from kapsa.fleet.orchestrator.planner import RolloutPlanner
from kapsa.fleet.orchestrator.ports.audit import AuditTrail
from kapsa.fleet.orchestrator.ports.outbox import MailMessage, WebhookEvent
from kapsa.fleet.orchestrator.ports.plan_sources import (
    ChartRenderRequest,
    InspectionRequest,
    LayeredValues,
    PreflightReport,
)
from kapsa.fleet.orchestrator.ports.rollouts import ReleaseBundle
from kapsa.fleet.orchestrator.ports.telemetry import UNREPORTED, RolloutReporter
from kapsa.fleet.orchestrator.ports.transactions import Connection, Transactions
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.rollout.conductor import RolloutConductor
from kapsa.fleet.orchestrator.rollout.engine import RolloutEngine
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.orchestrator.rollout.settings import EngineSettings
from kapsa.fleet.orchestrator.rollout.turn import ClusterServices
from kapsa.fleet.orchestrator.rollout.worker import ClusterWorker
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.examples import ADMIN, DEPLOYER, OTHER_ADMIN, START, cluster_id, environment_of
from tests.fleet.helm_double import FakeClusters

OPERATOR_ID = uuid.UUID(int=7)
RELEASE = ReleaseRef("cert-manager", "operators")
OLD, NEW, BAD = "sha256:chart-1", "sha256:chart-2", "sha256:chart-3"
PATIENCE = timedelta(minutes=2)
VERSIONS = {"1.0.0": OLD, "2.0.0": NEW, "3.0.0": BAD}


class RecordedOutbox:
    """Messages in the order in which they were put."""

    def __init__(self) -> None:
        self.mails: list[MailMessage] = []
        self.events: list[WebhookEvent] = []

    async def put(self, connection: Connection, message: MailMessage | WebhookEvent) -> None:
        (self.mails if isinstance(message, MailMessage) else self.events).append(message)


class FakePlanSources:
    """Values, rendered manifests and preflights. A test sets what they answer."""

    def __init__(self, clusters: FakeClusters) -> None:
        self.clusters = clusters
        self.values: dict[str, Any] = {}
        self.report: dict[str, Any] = {}
        """Fields of every preflight report."""
        self.renders = 0
        self.unrenderable = ""
        """The reason why the chart does not render; empty if it does."""

    async def layers(self, operator: ManagedOperator, cluster: ManagedCluster) -> LayeredValues:
        return LayeredValues((operator.values, self.values))

    async def render(self, request: ChartRenderRequest) -> bytes:
        if self.unrenderable:
            raise InvalidInput(self.unrenderable)
        async with self.clusters.interrupt("render"):
            self.renders += 1  # a chart that makes a certificate at each render
            return f"{request.chart_digest} {request.release} certificate {self.renders}".encode()

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        async with self.clusters.interrupt("inspect"):
            cluster = await self.clusters._reach(request.cluster.id, "inspect")
            latest = latest_record(cluster.history(request.live))
            return PreflightReport(
                latest.revision if latest else 0, latest.version if latest else "", **self.report
            )


class RolloutHarness:
    """One operator in three versions, clusters by name, and engines over one database."""

    def __init__(
        self,
        database: Database,
        *names: str,
        policy: ApprovalPolicy | None = None,
        sources: FakePlanSources | None = None,
        vault: EnvelopeVault | None = None,
        reporter: RolloutReporter = UNREPORTED,
        trail: AuditTrail | None = None,
    ) -> None:
        self.database = database
        self.reporter = reporter
        self.sources = sources or FakePlanSources(FakeClusters(*names, identify=cluster_id))
        self.clusters = self.sources.clusters
        self.vault: EnvelopeVault = vault or LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "test")))
        self.outbox = RecordedOutbox()
        self.jump = 0.0
        """Seconds by which the time of day on the machines of the replicas has jumped."""
        self.audit = AuditRecorder()
        self.policy = policy or ApprovalPolicy()
        self.registry = PostgresRegistry()
        self.store = PostgresRollouts()
        self.secrets = RolloutSecrets(self.vault)
        self.approval_rows = PostgresApprovals()
        self.now = START
        self.database.set_clock(START)
        recipients = {ClusterEnvironment.PRODUCTION: ("owners@example.com",)}
        self.desk = ApprovalDesk(
            self.approval_rows,
            self.outbox,
            self.policy,
            ApprovalMail(recipients, "https://fleet.example.com"),
        )
        self.notices = DeploymentNotices(self.outbox, "https://fleet.example.com")
        self.planner = RolloutPlanner(self.sources, self.sources, self.sources)
        self.deployments = Deployments(
            database,
            self.store,
            self.desk,
            self.registry,
            self.planner,
            trail or self.audit,
            self.policy,
            OperatorSecrets(PostgresOperators(), self.vault),
            self.secrets,
            self.notices,
            reporter=reporter,
        )
        self.approvals = Approvals(
            database, self.store, self.approval_rows, self.audit, self.notices, reporter=reporter
        )
        self.engine = self.replica("manager-1")

    def replica(self, owner: str, transactions: Transactions | None = None, **settings: Any) -> RolloutEngine:
        """Return one more engine, as after a restart or on another machine."""
        over = transactions or self.database
        # Short, so that a wait that gives up costs few checks.
        names = ("patience", "offline_patience", "rollback_patience", "hand_over_patience")
        # A lease that is taken before the third check: a rollback then finds every cluster where it would be.
        patience = {
            **dict.fromkeys(names, PATIENCE),
            "retry_interval": timedelta(seconds=30),
            "lease": timedelta(seconds=50),
        }
        chosen = EngineSettings(owner=owner, approvals=self.policy, **{**patience, **settings})
        services = ClusterServices(self.clusters, self.clusters, self.secrets, self.clusters)
        return RolloutEngine(
            over,
            self.store,
            RolloutConductor(
                over,
                self.store,
                self.registry,
                self.planner,
                self.desk,
                self.notices,
                self.secrets,
                chosen,
                reporter=self.reporter,
            ),
            ClusterWorker(over, self.store, self.registry, services, chosen, reporter=self.reporter),
            chosen,
            monotonic=self.seconds,
            time_of_day=lambda: self.seconds() + self.jump,
        )

    def seconds(self) -> float:
        """Return the virtual time of all processes, as a monotonic clock has it."""
        return (self.now - START).total_seconds()

    async def register(self, *, installed: bool = True, **facts: Any) -> None:
        """Register the operator and the clusters; version 1.0.0 runs on each, if `installed`."""
        operators = PostgresOperators()
        operator = ManagedOperator(
            OPERATOR_ID, RELEASE.name, RELEASE.namespace, UploadedChart(RELEASE.name), {}, {}, START, "dora"
        )
        async with self.database.transaction() as connection:
            await operators.insert(connection, operator)
            for version, digest in VERSIONS.items():
                made = OperatorVersion(OPERATOR_ID, version, digest, ChartFacts(**facts), START, "dora")
                await operators.insert_version(connection, made, digest.encode(), ())
            for each in self.clusters.clusters.values():
                await PostgresClusters().insert(connection, managed_cluster(each.name), each.name)
        if installed:
            for cluster in self.clusters.clusters.values():
                cluster.install_by_hand(RELEASE, OLD)

    async def update_cluster(self, name: str, **columns: Any) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(
                cluster_table.update().where(cluster_table.c.name == name).values(columns)
            )

    async def delete_cluster(self, name: str) -> str:
        """Delete a cluster. Return the name that deployments have in its place."""
        self.clusters[name].gone = True
        async with self.database.transaction() as connection:
            assert await PostgresClusters().delete(connection, cluster_id(name)) == []
        return pseudonym(cluster_id(name))

    async def create(
        self, strategy: Any = None, /, *, by: Principal = DEPLOYER, **changes: Any
    ) -> VersionDeployment:
        """Request a deployment of version 2.0.0 to all clusters."""
        name = type(strategy).__name__.removesuffix("Strategy") if strategy is not None else "Canary"
        config = {"Canary": "canary_config", "BlueGreen": "blue_green_config"}.get(
            name, f"{name.lower()}_config"
        )
        fields: dict[str, Any] = {
            "operator": RELEASE.name,
            "version": "2.0.0",
            "targets": ClusterSelector(tuple(each.name for each in self.clusters.clusters.values())),
            "strategy": StrategyName(name),
            config: strategy,
        }
        return await self.deployments.create(by, DeploymentRequest(**{**fields, **changes}))

    def set_time(self, moment: datetime) -> None:
        self.now = moment
        self.database.set_clock(moment)

    async def run(
        self,
        *engines: RolloutEngine,
        act: Callable[[], Awaitable[bool]] | None = None,
        horizon: timedelta = timedelta(days=3),
    ) -> None:
        """Run engines in turn, and move the clock to what is due next, until nothing waits for a time.

        `act` is called whenever nothing is due, before time passes. It returns True if it changed something.
        """
        chosen = engines or (self.engine,)
        for _ in range(2_000):
            if sum([await engine.run_due() for engine in chosen]):
                continue
            if act is not None and await act():
                continue
            due = await chosen[0].next_due()
            if due is None or due > START + horizon:
                return
            self.set_time(max(due, self.now))
        raise AssertionError("the rollout does not come to rest")

    async def settle(self, engine: RolloutEngine | None = None) -> None:
        """Do what is due now, and let no time pass."""
        while await (engine or self.engine).run_due():
            pass

    async def pass_time(self, duration: timedelta, engine: RolloutEngine | None = None) -> None:
        """Let time pass, and do everything at the moment when it is due."""
        end = self.now + duration
        await self.settle(engine)
        while (due := await (engine or self.engine).next_due()) is not None and due <= end:
            self.set_time(max(due, self.now))
            await self.settle(engine)
        self.set_time(end)

    async def deployment(self, deployment_id: uuid.UUID) -> VersionDeployment:
        async with self.database.transaction() as connection:
            present = await self.store.deployment(connection, deployment_id)
        assert present is not None
        return present

    async def bundle(self, deployment_id: uuid.UUID, cluster: uuid.UUID) -> ReleaseBundle:
        """Return what is applied to a cluster, opened."""
        async with self.database.transaction() as connection:
            sealed = await self.store.bundle(connection, deployment_id, cluster)
        assert sealed is not None
        return await self.secrets.open_bundle(deployment_id, cluster, sealed)

    async def targets(self, deployment_id: uuid.UUID) -> dict[str, RolloutTarget]:
        async with self.database.transaction() as connection:
            targets = await self.store.targets(connection, deployment_id)
        return {target.cluster_name: target for target in targets}

    async def approve_all(self, deployment_id: uuid.UUID) -> bool:
        """Approve, level by level, as two different admins. Return whether anything was pending."""
        async with self.database.transaction() as connection:
            requests = await self.approval_rows.of(connection, deployment_id)
        pending = [request for request in requests if request.state is ApprovalState.PENDING]
        for request in sorted(pending, key=lambda request: request.level):
            principal = ADMIN if request.level == 1 else OTHER_ADMIN
            await self.approvals.approve(principal, request.id)
        return bool(pending)

    async def summary(self, deployment_id: uuid.UUID) -> dict[str, Any]:
        """Return everything that must not depend on crashes: the end state, Helm's writes, and the history."""
        deployment = await self.deployment(deployment_id)
        async with self.database.transaction() as connection:
            events = await self.store.events(connection, deployment_id, after=0, limit=10_000)
            version = await self.registry.version(connection, OPERATOR_ID, deployment.version)
            installations = {
                each.name: await self.store.installation(connection, key, OPERATOR_ID)
                for key, each in self.clusters.clusters.items()
            }
        targets = await self.targets(deployment_id)
        assert version is not None
        return {
            "phase": deployment.phase,
            "message": deployment.message.replace(str(deployment_id), "ID"),
            "withdrawn": version.withdrawn_reason.replace(str(deployment_id), "ID"),
            "clusters": {name: _outcome(each) for name, each in targets.items()},
            "installations": {
                name: each and (each.release, each.revision, each.version, each.chart_digest)
                for name, each in installations.items()
            },
            "helm": {each.name: each.completed for each in self.clusters.clusters.values()},
            "histories": {each.name: _histories(each) for each in self.clusters.clusters.values()},
            "replicas": {each.name: each.replicas for each in self.clusters.clusters.values()},
            "webhooks": {each.name: each.webhooks for each in self.clusters.clusters.values()},
            "crds": {each.name: len(each.crds) for each in self.clusters.clusters.values()},
            "two controllers": [
                each.name for each in self.clusters.clusters.values() if each.two_controllers
            ],
            "events": _by_cluster(events),
        }


def _outcome(target: RolloutTarget) -> tuple[Any, ...]:
    return target.step, target.revision, target.base_revision, target.stage, target.reason, target.message


def _histories(cluster: Any) -> dict[str, list[tuple[int, str, str]]]:
    return {
        str(release): [(record.revision, record.status.value, record.description) for record in records]
        for release, records in cluster.records.items()
        if records
    }


_FLIPS = {"PhaseChanged Deploying → Validating", "PhaseChanged Validating → Deploying"}


def _by_cluster(events: Any) -> dict[str, list[str]]:
    """Return the history of each cluster, and under '' that of the deployment.

    Deploying and Validating alternate with the moment at which the deployment is looked at: they are left out.
    """
    result: dict[str, list[str]] = {}
    for event in events:
        line = f"{event.kind} {event.message}"
        if line not in _FLIPS:
            result.setdefault(event.cluster, []).append(line.replace("Validating →", "Deploying →"))
    return result


def managed_cluster(name: str) -> ManagedCluster:
    health = ClusterHealth(ClusterCondition.HEALTHY, kubernetes_version="v1.36.0")
    return ManagedCluster(
        cluster_id(name), name, environment_of(name), {"tier": name[-1]}, "https://x", health, START, "ada"
    )

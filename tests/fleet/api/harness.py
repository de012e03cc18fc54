"""The real application on a test's database, called over HTTP in memory, and tokens for its callers."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from litestar import Litestar
from prometheus_client import CollectorRegistry

from kapsa.fleet.api.application import ApiParts, create_application
from kapsa.fleet.api.authentication.authenticator import CallerAuthenticator
from kapsa.fleet.api.authentication.keys import LocalKey
from kapsa.fleet.api.authentication.sessions import SessionKeeper
from kapsa.fleet.api.authentication.tokens import TokenVerifier
from kapsa.fleet.api.use_cases import UseCases
from kapsa.fleet.domain.registry.operators import ChartFacts
from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy
from kapsa.fleet.infrastructure.audit.reader import PostgresAuditReader
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.clusters.gateway import KubernetesGateway
from kapsa.fleet.infrastructure.postgres.crds.crd_repository import PostgresCrds
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.health.health_readings import PostgresHealthReadings
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.registry.rollout_registry import PostgresRegistry
from kapsa.fleet.infrastructure.postgres.rollouts.approvals import PostgresApprovals
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.infrastructure.requests.browser_sessions import PostgresBrowserSessions
from kapsa.fleet.infrastructure.requests.idempotency import PostgresIdempotencyKeys
from kapsa.fleet.infrastructure.requests.rate_limits import PostgresRateLimits
from kapsa.fleet.infrastructure.vault.encryption_keys import FixedKeys, KeyRing, new_key_text
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.approval_requests import ApprovalDesk, ApprovalMail
from kapsa.fleet.orchestrator.approvals import Approvals
from kapsa.fleet.orchestrator.audit import AuditLog
from kapsa.fleet.orchestrator.crds.use_cases import Crds
from kapsa.fleet.orchestrator.deployments import Deployments
from kapsa.fleet.orchestrator.operator_health import OperatorHealths
from kapsa.fleet.orchestrator.planner import RolloutPlanner
from kapsa.fleet.orchestrator.ports.charts import ChartCrd, InspectedChart
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.fleet.orchestrator.ports.plan_sources import InspectionRequest, PreflightReport
from kapsa.fleet.orchestrator.ports.requests.rate_limits import RateLimit
from kapsa.fleet.orchestrator.registry.adoptions import Adoptions
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials
from kapsa.fleet.orchestrator.registry.clusters import Clusters
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets
from kapsa.fleet.orchestrator.registry.operators import Operators
from kapsa.fleet.orchestrator.rollout.notices import DeploymentNotices
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from tests.fleet.charts import crd
from tests.fleet.examples import cluster_id
from tests.fleet.helm_double import FakeClusters
from tests.fleet.rollout_harness import FakePlanSources, RecordedOutbox

ISSUER, AUDIENCE = "https://issuer.example.com", "kapsa-fleet"
ADMIN, OPERATOR, VIEWER, OWNER = "Admin", "Operator", "Viewer", "EnvironmentOwner:Production"
SIGNING_KEY = Ed25519PrivateKey.generate()
BASE = "https://fleet.example.com"

WIDGET = {
    "name": "widget",
    "namespace": "widgets",
    "source": {"type": "http", "repository": "https://charts.example.com", "chart": "widget"},
}


def claims(subject: str = "maria", *roles: str, **changes: Any) -> dict[str, Any]:
    """Return the claims of a token; a change to None removes a claim."""
    now = int(time.time())
    standard = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": subject,
        "nbf": now,
        "exp": now + 600,
        "roles": list(roles or [ADMIN]),
    }
    return {key: value for key, value in {**standard, **changes}.items() if value is not None}


def token(
    subject: str = "maria", *roles: str, headers: Mapping[str, Any] | None = None, **changes: Any
) -> str:
    """Return a token that the application accepts, unless the changes prevent it."""
    content = claims(subject, *roles, **changes)
    return jwt.encode(content, SIGNING_KEY, algorithm="EdDSA", headers=dict(headers or {}))


class FakeCharts:
    """Charts that no helm looks at. A version is its own content."""

    async def fetch(self, source: Any, version: str, login: Any) -> bytes:
        return (version or "1.0.0").encode()

    async def inspect(self, content: bytes, **_: Any) -> InspectedChart:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        version = content.decode() if content[:1].isdigit() else "1.0.0"
        return InspectedChart(
            content, digest, version, ChartFacts(), (ChartCrd("widgets.example.com", "crds", crd()),)
        )


class UnreadableClusters:
    """Clusters whose resources cannot be read."""

    async def definition(self, cluster_id: uuid.UUID, name: str) -> Mapping[str, Any] | None:
        raise ResourcesUnreadable("the cluster does not answer")

    async def pages(
        self, cluster_id: uuid.UUID, crd: Mapping[str, Any]
    ) -> AsyncIterator[list[dict[str, Any]]]:
        raise ResourcesUnreadable("the cluster does not answer")
        yield []


class UnreachableSources(FakePlanSources):
    """Plan sources without a cluster that answers."""

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        raise ClusterUnreachable(f"{request.cluster.name} does not answer")


class NoLimits:
    """Rate limits that are never reached."""

    async def hit(self, subject: str, limit: RateLimit) -> int:
        return 0


def use_cases(database: Database, vault: LocalVault) -> UseCases:
    """Return the use cases on a real database, with charts that no helm looks at."""
    audit, charts, operators = PostgresAuditTrail(bytes(32)), FakeCharts(), PostgresOperators()
    repository, gateway = PostgresClusters(), KubernetesGateway(allow_loopback=True)
    credentials = ClusterCredentials(database, repository, gateway, vault, audit)
    adoptions = Adoptions(database, repository, operators, gateway, credentials, charts, vault, audit)  # type: ignore[arg-type]
    rollouts, policy = PostgresRollouts(), ApprovalPolicy()
    sources = UnreachableSources(FakeClusters(identify=cluster_id))
    desk = ApprovalDesk(PostgresApprovals(), RecordedOutbox(), policy, ApprovalMail())
    notices = DeploymentNotices(RecordedOutbox())
    return UseCases(
        operators=Operators(database, operators, charts, vault, audit),  # type: ignore[arg-type]
        clusters=Clusters(database, repository, gateway, credentials, adoptions, audit),
        audit_log=AuditLog(PostgresAuditReader(database)),
        crds=Crds(database, PostgresCrds(), operators, UnreadableClusters(), audit),
        health=OperatorHealths(database, operators, repository, PostgresHealthReadings()),
        deployments=Deployments(
            database,
            rollouts,
            desk,
            PostgresRegistry(),
            RolloutPlanner(sources, sources, sources),
            audit,
            policy,
            OperatorSecrets(operators, vault),
            RolloutSecrets(vault),
            notices,
        ),
        approvals=Approvals(database, rollouts, PostgresApprovals(), audit, notices),
    )


def application(database: Database, **changes: Any) -> Litestar:
    """Return the real application; parts can be exchanged."""
    vault = LocalVault(FixedKeys(KeyRing.parse(new_key_text(), "test")))
    verifier = TokenVerifier(LocalKey(SIGNING_KEY.public_key()), issuer=ISSUER, audience=AUDIENCE)
    parts: dict[str, Any] = {
        "use_cases": use_cases(database, vault),
        "authenticator": CallerAuthenticator(verifier, SessionKeeper(PostgresBrowserSessions(database))),
        "rate_limits": PostgresRateLimits(database),
        "idempotency_keys": PostgresIdempotencyKeys(database),
        "check_database": database.check,
        "registry": CollectorRegistry(),
        "carries_out_rollouts": True,
        "accepts_pasted_tokens": True,
    }
    return create_application(ApiParts(**{**parts, **changes}))


class ApiClient:
    """A caller of the API, with or without a token."""

    def __init__(self, app: Any, bearer: str = "") -> None:
        self.app = app
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)

    def as_user(self, subject: str, *roles: str, **changes: Any) -> ApiClient:
        """Return a caller with a token of its own."""
        return ApiClient(self.app, token(subject, *roles, **changes))

    def anonymous(self) -> ApiClient:
        return ApiClient(self.app)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return await self.http.post(path, json=json, **options)

    async def patch(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return await self.http.patch(path, json=json, **options)

    async def delete(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.delete(path, **options)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.http.request(method, path, **options)

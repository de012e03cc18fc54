"""Objects in the database for every route: one of the caller, and one of somebody else."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Litestar
from litestar.routes import HTTPRoute
from sqlalchemy import text

from kapsa.fleet.api.access import RouteAccess, access_of
from kapsa.fleet.api.application import CONTROLLERS
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.domain.principals import Role
from kapsa.fleet.domain.registry.clusters import (
    ClusterCondition,
    ClusterEnvironment,
    ClusterHealth,
    ManagedCluster,
)
from kapsa.fleet.domain.registry.operators import ChartFacts, HttpChart, ManagedOperator, OperatorVersion
from kapsa.fleet.domain.rollout.approvals import ApprovalKind, ApprovalRequest
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.rollouts.approvals import PostgresApprovals
from kapsa.fleet.infrastructure.postgres.rollouts.installations import InstallationRows
from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation
from tests.fleet.charts import crd

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


EXCEPTIONS: set[tuple[str, Role, bool]] = {
    *(
        (operation, role, True)  # nobody decides on what they requested
        for operation in ("approve", "reject")
        for role in (Role.ADMIN, Role.ENVIRONMENT_OWNER)
    ),
    ("approveCrd", Role.ADMIN, True),  # nor on a CRD of a version that they registered
}
"""(operation, role, own) that the use case refuses although the route admits the role."""


class Route(msgspec.Struct, frozen=True):
    """One operation of the API."""

    method: str
    path: str
    operation: str
    access: RouteAccess
    has_body: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def routes() -> list[Route]:
    """Return every operation of the application."""
    app = Litestar(list(CONTROLLERS), request_class=ApiRequest, openapi_config=None, logging_config=None)
    collected: list[Route] = []
    for route in app.routes:
        assert isinstance(route, HTTPRoute)
        for method, (handler, _) in route.route_handler_map.items():
            access = access_of(handler.opt)
            if method == "OPTIONS":
                continue
            assert access is not None, f"{method} {route.path_format} declares no access"
            name = handler.operation_id or handler.handler_name
            has_body = handler.parsed_data_field is not None
            collected.append(Route(method, route.path_format, str(name), access, has_body))
    return sorted(collected, key=str)


class FleetObjects(msgspec.Struct, frozen=True):
    """Names and ids of objects, by the first part of their paths."""

    own: dict[str, str]
    other: dict[str, str]

    def path(self, route: Route, *, own: bool) -> str:
        """Return the path of a route with the names of objects of the caller, or of somebody else."""
        names = self.own if own else self.other
        kind = route.path.split("/")[3] if route.path.startswith("/api/v1/") else ""
        parts = []
        for part in route.path.split("/"):
            if part == "{cluster}":
                part = names["clusters"]
            elif part.startswith("{"):
                part = names["operators"] if "/operators/" in route.path else names[kind]
            parts.append(part)
        return "/".join(parts)

    def body(self, route: Route, *, own: bool) -> Any:
        """Return a body that names objects of the caller, or of somebody else; None if the route has none."""
        names = self.own if own else self.other
        return _bodies(names)[route.operation] if route.has_body else None


def _bodies(names: dict[str, str]) -> dict[str, Any]:
    """Return the body of each operation. All objects in it exist, so that only a right is missing if it is refused."""
    operator, cluster, crd_name = names["operators"], names["clusters"], names["crds"]
    deployment = {
        "operator": operator,
        "version": "1.0.0",
        "targets": {"clusters": [cluster]},
        "strategy": "Canary",
    }
    source = {"type": "http", "repository": "https://charts.example.com", "chart": "widget"}
    return {
        "registerOperator": {"name": "new-operator", "namespace": "widgets", "source": source},
        "updateOperator": {"values": {"replicas": 2}},
        "addOperatorVersion": {"version": "1.1.0"},
        "registerCluster": {"name": "new-cluster", "environment": "Dev", "kubeconfig": "not a kubeconfig"},
        "updateCluster": {"labels": {"tier": "gold"}},
        "adoptRelease": {"operator": operator},
        "storeCrd": {"operator": operator, "version": "1.0.0", "definition": crd("gadgets")},
        "validateCrd": {"operator": operator, "version": "1.0.0"},
        "approveCrd": {
            "operator": operator,
            "version": "1.0.0",
            "digest": f"sha256:{'0' * 64}",
            "comment": crd_name,
        },
        "createDeployment": deployment,
        "previewDeployment": deployment,
        "retryDeployment": {},
        "rollBackDeployment": {"reason": "it fails"},
        "approve": {"comment": "yes"},
        "reject": {"comment": "no"},
        "signInWithToken": {"token": "not a token"},
    }


async def create_objects(database: Database, *, caller: str) -> FleetObjects:
    """Create the objects, in place of those of an earlier call."""
    async with database.transaction() as connection:
        await connection.execute(text("TRUNCATE fleet.operator, fleet.cluster, fleet.deployment CASCADE"))
        own = await _create(connection, caller, "own")
        other = await _create(connection, "olaf", "other")
    return FleetObjects(own, other)


async def _create(connection: Any, creator: str, prefix: str) -> dict[str, str]:
    operator, cluster = _operator(creator, prefix), _cluster(creator, prefix)
    await PostgresOperators().insert(connection, operator)
    await PostgresClusters().insert(connection, cluster, f"uid-{prefix}")
    deployment = VersionDeployment(
        id=uuid.uuid4(),
        operator_id=operator.id,
        operator_name=operator.name,
        version="1.0.0",
        strategy=CanaryStrategy(),
        values={},
        phase=DeploymentPhase.AWAITING_APPROVAL,
        requested_by=creator,
        created_at=NOW,
        plan_digest="sha256:plan",
    )
    version = OperatorVersion(operator.id, "1.0.0", f"sha256:{prefix}", ChartFacts(), NOW, creator)
    definition = ChartCrd(f"{prefix}s.example.com", "crds", crd(f"{prefix}s"))
    await PostgresOperators().insert_version(connection, version, prefix.encode(), [definition])
    release = ReleaseRef(operator.name, operator.namespace)
    target = RolloutTarget(
        deployment_id=deployment.id,
        operator_id=operator.id,
        cluster_id=cluster.id,
        cluster_name=cluster.name,
        environment=cluster.environment,
        live=release,
        next=release,
    )
    approval = ApprovalRequest(
        id=uuid.uuid4(),
        deployment_id=deployment.id,
        kind=ApprovalKind.PRODUCTION,
        environment=ClusterEnvironment.PRODUCTION,
        digest="sha256:plan",
        requested_by=creator,
        created_at=NOW,
        expires_at=NOW.replace(year=2100),
    )
    await PostgresRollouts().insert(connection, deployment, [target], None)
    await PostgresApprovals().insert(connection, [approval])
    installed = OperatorInstallation(cluster.id, operator.id, release, 1, "1.0.0", f"sha256:{prefix}")
    await InstallationRows().record(connection, installed)
    return {
        "operators": operator.name,
        "clusters": cluster.name,
        "deployments": str(deployment.id),
        "approvals": str(approval.id),
        "crds": f"{prefix}s.example.com",
    }


def _operator(creator: str, prefix: str) -> ManagedOperator:
    return ManagedOperator(
        id=uuid.uuid4(),
        name=f"{prefix}-operator",
        namespace="widgets",
        source=HttpChart("https://charts.example.com", "widget"),
        values={},
        environment_values={},
        created_at=NOW,
        created_by=creator,
    )


def _cluster(creator: str, prefix: str) -> ManagedCluster:
    return ManagedCluster(
        id=uuid.uuid4(),
        name=f"{prefix}-cluster",
        environment=ClusterEnvironment.PRODUCTION,
        labels={"owner": creator},
        server="https://203.0.113.7:6443",
        health=ClusterHealth(ClusterCondition.UNKNOWN),
        created_at=NOW,
        created_by=creator,
    )

"""Domain objects for tests: complete, with the few fields that a test cares about as parameters."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import ApprovalKind, ApprovalRequest
from kapsa.fleet.domain.rollout.deployments import (
    ConflictPolicy,
    DeploymentPhase,
    OfflinePolicy,
    VersionDeployment,
)
from kapsa.fleet.domain.rollout.plans import ClusterPlan, RolloutPlan
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, StageTarget, stages
from kapsa.fleet.domain.rollout.targets import RolloutTarget

START = datetime(2027, 1, 4, 12, 0, tzinfo=UTC)  # a Monday
OPERATOR = uuid.UUID(int=7)
DEPLOYMENT = uuid.UUID(int=8)
RELEASE = ReleaseRef("cert-manager", "operators")

ADMIN = Principal("ada", frozenset({Role.ADMIN}))
OTHER_ADMIN = Principal("grace", frozenset({Role.ADMIN}))
OWNER = Principal("olga", frozenset({Role.ENVIRONMENT_OWNER}), frozenset({ClusterEnvironment.PRODUCTION}))
DEPLOYER = Principal("dora", frozenset({Role.OPERATOR}))


def cluster_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def environment_of(name: str) -> ClusterEnvironment:
    """Return the environment that the name of a cluster begins with: dev-1, staging-1, prod-1."""
    prefixes = {
        "dev": ClusterEnvironment.DEV,
        "staging": ClusterEnvironment.STAGING,
        "prod": ClusterEnvironment.PRODUCTION,
    }
    return prefixes[name.split("-")[0]]


def cluster_plan(name: str = "dev-1", **changes: Any) -> ClusterPlan:
    fields: dict[str, Any] = {
        "cluster_id": cluster_id(name),
        "cluster_name": name,
        "environment": environment_of(name),
        "stage": 1,
        "live": RELEASE,
        "next": RELEASE,
        "present_revision": 1,
        "present_version": "1.0.0",
        "values_digest": "sha256:values",
        "manifest_digest": "sha256:manifest",
    }
    return ClusterPlan(**{**fields, **changes})


def rollout_plan(*clusters: ClusterPlan, **changes: Any) -> RolloutPlan:
    listed = clusters or (cluster_plan(),)
    strategy = changes.pop("strategy", CanaryStrategy())
    fields: dict[str, Any] = {
        "operator_id": OPERATOR,
        "operator_name": "cert-manager",
        "version": "2.0.0",
        "chart_digest": "sha256:chart",
        "strategy": strategy,
        "on_conflict": ConflictPolicy.FAIL,
        "on_offline": OfflinePolicy.WAIT,
        "stages": stages(strategy, [StageTarget(each.cluster_name, each.environment) for each in listed]),
        "clusters": listed,
    }
    return RolloutPlan(**{**fields, **changes})


def deployment(**changes: Any) -> VersionDeployment:
    fields: dict[str, Any] = {
        "id": DEPLOYMENT,
        "operator_id": OPERATOR,
        "operator_name": "cert-manager",
        "version": "2.0.0",
        "strategy": CanaryStrategy(),
        "values": {},
        "phase": DeploymentPhase.DEPLOYING,
        "requested_by": "dora",
        "created_at": START,
    }
    return VersionDeployment(**{**fields, **changes})


def target(name: str = "dev-1", **changes: Any) -> RolloutTarget:
    fields: dict[str, Any] = {
        "deployment_id": DEPLOYMENT,
        "operator_id": OPERATOR,
        "cluster_id": cluster_id(name),
        "cluster_name": name,
        "environment": environment_of(name),
        "live": RELEASE,
        "next": RELEASE,
        "stage": 1,
    }
    return RolloutTarget(**{**fields, **changes})


def approval(**changes: Any) -> ApprovalRequest:
    fields: dict[str, Any] = {
        "id": uuid.uuid4(),
        "deployment_id": DEPLOYMENT,
        "kind": ApprovalKind.PRODUCTION,
        "environment": ClusterEnvironment.PRODUCTION,
        "digest": "sha256:plan",
        "requested_by": "dora",
        "created_at": START,
        "expires_at": START.replace(day=5),
    }
    return ApprovalRequest(**{**fields, **changes})


def health(
    evidence: Evidence, *, revision: int = 2, conclusive: bool = False, reason: str = "Seen"
) -> OperatorHealth:
    check = HealthCheck(CheckKind.PODS, evidence, reason, f"pods are {evidence}", conclusive)
    return OperatorHealth(revision, "sha256:chart", (check,), controller_pods=1)

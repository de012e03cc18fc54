"""Examples of deployments, plans and approvals, made of the types themselves."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kapsa.fleet.api.views import (
    ApprovalDecision,
    DeploymentHistory,
    RetryDeployment,
    RollBackDeployment,
)
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.approvals import ApprovalKind, ApprovalRequest, RequiredApproval
from kapsa.fleet.domain.rollout.deployments import (
    ConflictPolicy,
    DeploymentPhase,
    OfflinePolicy,
    RolloutEvent,
    VersionDeployment,
)
from kapsa.fleet.domain.rollout.plans import ClusterPlan, LiveVerdict, RolloutPlan, plan_digest
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy, StageTarget, stages
from kapsa.fleet.domain.rollout.targets import RolloutTarget
from kapsa.fleet.orchestrator.deployment_requests import (
    ClusterSelector,
    DeploymentDetails,
    DeploymentRequest,
    PlanDetails,
    RollbackStatus,
    StrategyName,
    target_status,
)

__all__ = ["ROLLOUT_EXAMPLES"]

_AT = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
_OPERATOR, _DEPLOYMENT, _CLUSTER, _APPROVAL = (uuid.UUID(int=0x7F0C9B52 + number) for number in range(4))
_RELEASE = ReleaseRef("cert-manager", "cert-manager")
_CHART, _VALUES, _MANIFEST = (f"sha256:{letter * 64}" for letter in "abc")
_PRODUCTION = ClusterEnvironment.PRODUCTION

_deployment = VersionDeployment(
    id=_DEPLOYMENT,
    operator_id=_OPERATOR,
    operator_name="cert-manager",
    version="1.19.2",
    strategy=CanaryStrategy(),
    values={},
    phase=DeploymentPhase.AWAITING_APPROVAL,
    requested_by="maria",
    created_at=_AT,
    waits_for="an approval for Production",
)
_target = target_status(
    RolloutTarget(
        deployment_id=_DEPLOYMENT,
        operator_id=_OPERATOR,
        cluster_id=_CLUSTER,
        cluster_name="prod-eu",
        environment=_PRODUCTION,
        live=_RELEASE,
        next=_RELEASE,
        stage=1,
    )
)
_plan = RolloutPlan(
    operator_id=_OPERATOR,
    operator_name="cert-manager",
    version="1.19.2",
    chart_digest=_CHART,
    strategy=CanaryStrategy(),
    on_conflict=ConflictPolicy.FAIL,
    on_offline=OfflinePolicy.WAIT,
    stages=stages(CanaryStrategy(), [StageTarget("prod-eu", _PRODUCTION)]),
    clusters=(
        ClusterPlan(
            cluster_id=_CLUSTER,
            cluster_name="prod-eu",
            environment=_PRODUCTION,
            stage=1,
            live=_RELEASE,
            next=_RELEASE,
            present_revision=3,
            present_version="1.19.1",
            values_digest=_VALUES,
            manifest_digest=_MANIFEST,
            verdicts=(LiveVerdict("certificates.cert-manager.io", checked=412, rejected=0),),
        ),
    ),
)
_digest = plan_digest(_plan)

_STRUCTS: tuple[msgspec.Struct, ...] = (
    DeploymentRequest(
        operator="cert-manager",
        version="1.19.2",
        targets=ClusterSelector(environment=_PRODUCTION),
        strategy=StrategyName.CANARY,
        canary_config=CanaryStrategy(),
    ),
    _deployment,
    DeploymentDetails(_deployment, (_target,)),
    PlanDetails(_digest, _plan, (RequiredApproval(1, _PRODUCTION, ApprovalKind.PRODUCTION),)),
    RollbackStatus(_DEPLOYMENT, DeploymentPhase.ROLLING_BACK, "CrashLoopBackOff", _AT, None, (_target,)),
    RetryDeployment(),
    RollBackDeployment("The controller leaks memory."),
    DeploymentHistory(
        (RolloutEvent("PhaseChanged", "Planning is done", sequence=1, at=_AT),), last_sequence=1
    ),
    ApprovalDecision("Agreed in the change meeting."),
    ApprovalRequest(
        id=_APPROVAL,
        deployment_id=_DEPLOYMENT,
        kind=ApprovalKind.PRODUCTION,
        environment=_PRODUCTION,
        digest=_digest,
        requested_by="maria",
        created_at=_AT,
        expires_at=_AT + timedelta(hours=24),
    ),
)

ROLLOUT_EXAMPLES: dict[Any, Any] = {type(each): msgspec.to_builtins(each) for each in _STRUCTS}

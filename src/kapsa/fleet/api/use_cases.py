"""The use cases that the routes call."""

import msgspec

from kapsa.fleet.orchestrator.approvals import Approvals
from kapsa.fleet.orchestrator.audit import AuditLog
from kapsa.fleet.orchestrator.crds.use_cases import Crds
from kapsa.fleet.orchestrator.deployments import Deployments
from kapsa.fleet.orchestrator.operator_health import OperatorHealths
from kapsa.fleet.orchestrator.registry.clusters import Clusters
from kapsa.fleet.orchestrator.registry.operators import Operators

__all__ = ["UseCases"]


class UseCases(msgspec.Struct, frozen=True, kw_only=True):
    """The use cases of one manager."""

    operators: Operators
    audit_log: AuditLog
    crds: Crds
    health: OperatorHealths
    deployments: Deployments
    approvals: Approvals
    clusters: Clusters

"""The use cases that the routes call."""

import msgspec

from kapsa.fleet.orchestrator.audit import AuditLog
from kapsa.fleet.orchestrator.clusters import Clusters
from kapsa.fleet.orchestrator.operators import Operators

__all__ = ["UseCases"]


class UseCases(msgspec.Struct, frozen=True, kw_only=True):
    """The use cases of one manager."""

    operators: Operators
    audit_log: AuditLog
    clusters: Clusters

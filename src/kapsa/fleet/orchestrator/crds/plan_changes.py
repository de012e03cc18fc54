"""The CRDs of a plan: what a version of an operator would change on one cluster, and what speaks against it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.clusters import ManagedCluster
from kapsa.fleet.domain.crds import ChangeSeverity, CrdComparison
from kapsa.fleet.domain.operators import OperatorVersion
from kapsa.fleet.domain.plans import CrdChange, LiveVerdict, PreflightProblem
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges, LiveChange
from kapsa.fleet.orchestrator.ports.crds import LiveResources, ResourcesUnreadable
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.transactions import Transactions

__all__ = ["CrdPlan", "CrdPlanner", "crd_change"]


class CrdPlan(msgspec.Struct, frozen=True):
    """The part of a preflight report that is about CRDs."""

    crds: tuple[CrdChange, ...] = ()
    verdicts: tuple[LiveVerdict, ...] = ()
    problems: tuple[PreflightProblem, ...] = ()


class CrdPlanner:
    """A maker of the CRD part of plans."""

    def __init__(
        self, transactions: Transactions, operators: OperatorRepository, live: LiveResources
    ) -> None:
        self._transactions = transactions
        self._operators = operators
        self._changes = ClusterChanges(live)

    async def plan(self, cluster: ManagedCluster, version: OperatorVersion) -> CrdPlan:
        """Return the changes of all CRDs of a version on a cluster.

        A CRD that cannot be read is a problem: a plan must not be approved blindly.
        """
        async with self._transactions.transaction() as connection:
            crds = await self._operators.crds(connection, version.operator_id, version.version)
        parts = [await self._one(cluster, crd.name, crd.definition) for crd in crds]
        return CrdPlan(
            tuple(change for part in parts for change in part.crds),
            tuple(verdict for part in parts for verdict in part.verdicts),
            tuple(problem for part in parts for problem in part.problems),
        )

    async def _one(self, cluster: ManagedCluster, name: str, definition: Mapping[str, Any]) -> CrdPlan:
        try:
            change = await self._changes.live_change(
                cluster.id, cluster.health.kubernetes_version, definition
            )
        except ResourcesUnreadable as error:
            return CrdPlan(problems=(PreflightProblem("CrdUnreadable", f"{name} cannot be read: {error}"),))
        if change is None:
            return CrdPlan((CrdChange(name, ChangeSeverity.SAFE.value, (), one_way=False),))
        return CrdPlan((crd_change(change.comparison),), (change.verdict,), _problems(change))


def crd_change(comparison: CrdComparison) -> CrdChange:
    """Return a comparison as a plan shows and hashes it."""
    headlines = sorted(finding.headline for finding in comparison.findings)
    return CrdChange(comparison.name, comparison.severity.value, tuple(headlines), comparison.one_way)


def _problems(change: LiveChange) -> tuple[PreflightProblem, ...]:
    """Return why the API server would refuse the CRD as things are."""
    return tuple(
        PreflightProblem("CrdBlocked", f"{change.comparison.name}: {finding.reason}; {finding.remedy}")
        for finding in change.comparison.findings
        if finding.blocked
    )

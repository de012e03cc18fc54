"""Preflights: what a cluster says about a release before anything changes.

It reads the present release and its foreign managers, and compares each CRD of the version with the cluster's own and
with the resources that the cluster has. Dry runs of every object join with the Helm adapter.
"""

from kapsa.fleet.domain.clusters import ManagedCluster
from kapsa.fleet.domain.operators import OperatorVersion
from kapsa.fleet.domain.plans import CrdChange, LiveVerdict, PreflightProblem
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges, crd_change
from kapsa.fleet.orchestrator.ports.clusters import ClusterGateway, ReleaseContent
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.plan_sources import InspectionRequest, PreflightReport
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials

__all__ = ["ClusterPreflights"]


class ClusterPreflights:
    """A maker of preflight reports from the cluster itself."""

    def __init__(
        self,
        transactions: Transactions,
        operators: OperatorRepository,
        gateway: ClusterGateway,
        credentials: ClusterCredentials,
        changes: ClusterChanges,
    ) -> None:
        self._transactions = transactions
        self._operators = operators
        self._gateway = gateway
        self._credentials = credentials
        self._changes = changes

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        """Look at a cluster. Raises ClusterUnreachable if it does not answer."""
        live = request.live
        async with self._gateway.connect(await self._credentials.access(request.cluster)) as session:
            content = await session.release(live.namespace, live.name)
        changes, verdicts, problems = await self._crds(request.cluster, request.version)
        return PreflightReport(
            present_revision=content.release.revision if content else 0,
            present_version=content.release.chart_version if content else "",
            crds=tuple(changes),
            verdicts=tuple(verdicts),
            problems=(*_owners(content), *problems),
        )

    async def _crds(
        self, cluster: ManagedCluster, version: OperatorVersion
    ) -> tuple[list[CrdChange], list[LiveVerdict], list[PreflightProblem]]:
        async with self._transactions.transaction() as connection:
            crds = await self._operators.crds(connection, version.operator_id, version.version)
        kubernetes = cluster.health.kubernetes_version
        changes: list[CrdChange] = []
        verdicts: list[LiveVerdict] = []
        problems: list[PreflightProblem] = []
        for crd in crds:
            try:
                change = await self._changes.live_change(cluster.id, kubernetes, crd.definition)
            except ResourcesUnreadable as error:
                problems.append(_problem("CrdUnreadable", f"{crd.name} cannot be compared: {error}"))
                continue
            if change is None:
                continue
            changes.append(crd_change(change.comparison))
            verdicts.append(change.verdict)
            blocked = [finding for finding in change.comparison.findings if finding.blocked]
            problems += [
                _problem("CrdBlocked", f"{crd.name}: {each.reason}; {each.remedy}") for each in blocked
            ]
        return changes, verdicts, problems


def _owners(content: ReleaseContent | None) -> tuple[PreflightProblem, ...]:
    if content is None:
        return ()
    return tuple(
        _problem("OtherOwner", f"the release is managed by {manager}, which would undo the change")
        for manager in content.managers
    )


def _problem(check: str, message: str) -> PreflightProblem:
    return PreflightProblem(check, message)

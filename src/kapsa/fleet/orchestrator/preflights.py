"""Preflights: what a cluster says about a release before anything changes.

It reads the present release and its foreign managers, compares each CRD of the version with the cluster's own and with
the resources that the cluster has, and lets the cluster try every object of the manifest.
"""

from collections.abc import Iterator, Sequence

from kapsa.fleet.domain.crds import ChangeRule, ChangeSeverity, CrdComparison, CrdFinding
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import CrdChange, FieldConflict, LiveVerdict, PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.crds.cluster_changes import ClusterChanges, crd_change
from kapsa.fleet.orchestrator.ports.audit import AuditEntry, AuditTrail
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.clusters import ClusterGateway, ReleaseContent
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.plan_sources import InspectionRequest, PreflightReport
from kapsa.fleet.orchestrator.ports.telemetry import UNMETERED, RegistryMeter
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.ports.trials import PresentRelease, ReleaseTrials, TrialRequest
from kapsa.fleet.orchestrator.registry.cluster_credentials import ClusterCredentials

__all__ = ["ClusterPreflights"]

_ACTOR = "system:rollouts"
_MOST_NARROWED = 5


class _ComparedCrds:
    """The CRDs of a version, compared with those of a cluster."""

    def __init__(self) -> None:
        self.changes: list[CrdChange] = []
        self.verdicts: list[LiveVerdict] = []
        self.problems: list[PreflightProblem] = []
        self.notices: list[str] = []

    def judge(self, name: str, comparison: CrdComparison) -> None:
        """Note the findings that block a CRD, and those that the rollout resolves itself."""
        for finding in comparison.findings:
            if finding.rule is ChangeRule.STORED_VERSION_REMOVED:
                self.notices.append(
                    f"{name}: {finding.reason}; the rollout keeps the version until its objects are migrated"
                )
            elif finding.blocked:
                message = f"{name}: {finding.reason}; {finding.remedy}"
                self.problems.append(PreflightProblem("CrdBlocked", message))


class ClusterPreflights:
    """A maker of preflight reports from the cluster itself."""

    def __init__(
        self,
        transactions: Transactions,
        operators: OperatorRepository,
        gateway: ClusterGateway,
        credentials: ClusterCredentials,
        changes: ClusterChanges,
        trials: ReleaseTrials,
        audit: AuditTrail,
        *,
        meter: RegistryMeter = UNMETERED,
    ) -> None:
        self._transactions = transactions
        self._operators = operators
        self._gateway = gateway
        self._credentials = credentials
        self._changes = changes
        self._trials = trials
        self._audit = audit
        self._meter = meter

    async def inspect(self, request: InspectionRequest) -> PreflightReport:
        """Look at a cluster, and try the manifest there. Raises ClusterUnreachable if it does not answer."""
        version = request.version
        async with self._transactions.transaction() as connection:
            crds = await self._operators.crds(connection, version.operator_id, version.version)
            chart = await self._operators.archive(connection, version.chart_digest)
            await self._audit.record(connection, _inspection_entry(request))
        async with self._gateway.connect(await self._credentials.access(request.cluster)) as session:
            running = await session.release(request.live.namespace, request.live.name)
            replaced = running
            if request.next != request.live:
                replaced = await session.release(request.next.namespace, request.next.name)
        compared = await self._compare(request.cluster, crds)
        trial = await self._trials.attempt(_trial(request, running, replaced, crds, chart or b""))
        return PreflightReport(
            present_revision=running.release.revision if running else 0,
            present_version=running.release.chart_version if running else "",
            crds=tuple(compared.changes),
            verdicts=tuple(compared.verdicts),
            conflicts=trial.conflicts,
            problems=(*_owners(running), *compared.problems, *trial.problems),
            diff=trial.diff,
            notices=(*_states(running), *compared.notices, *trial.notices),
            manifest=trial.manifest,
            additions=trial.additions,
        )

    async def conflicts(
        self, cluster: ManagedCluster, release: ReleaseRef, manifest: bytes
    ) -> tuple[FieldConflict, ...]:
        """Return the fields of a manifest that other managers own. Raises ClusterUnreachable if it does not answer."""
        async with self._transactions.transaction() as connection:
            await self._audit.record(connection, _entry(cluster, {"release": str(release)}))
        async with self._gateway.connect(await self._credentials.access(cluster)) as session:
            replaced = await session.release(release.namespace, release.name)
        trial = await self._trials.attempt(
            TrialRequest(
                cluster_id=cluster.id,
                release=release,
                manifest=manifest,
                on_conflict=ConflictPolicy.FAIL,  # every conflict is reported, and none is left or taken
                replaced=_present(replaced),
            )
        )
        return trial.conflicts

    async def _compare(self, cluster: ManagedCluster, crds: Sequence[ChartCrd]) -> _ComparedCrds:
        result = _ComparedCrds()
        kubernetes = cluster.health.kubernetes_version
        for crd in crds:
            try:
                change = await self._changes.live_change(cluster.id, kubernetes, crd.definition)
            except ResourcesUnreadable as error:
                message = f"{crd.name} cannot be compared: {error}"
                result.problems.append(PreflightProblem("CrdUnreadable", message))
                continue
            breaking = change is not None and change.comparison.severity is ChangeSeverity.BREAKING
            self._meter.crd_validated(breaking=breaking)
            if change is not None:
                result.changes.append(crd_change(change.comparison))
                result.verdicts.append(change.verdict)
                result.judge(crd.name, change.comparison)
                result.notices += _ratcheted(crd.name, kubernetes, change.ratcheted)
        return result


def _ratcheted(name: str, kubernetes: str, findings: Sequence[CrdFinding]) -> Iterator[str]:
    """Yield why narrowing changes of a CRD need no approval on a cluster, the first few of them one by one."""
    for each in findings[:_MOST_NARROWED]:
        where = f"{each.version}:{each.path}" if each.version else each.path
        yield (
            f"{name} {where}: {each.reason}. It is a warning and needs no approval as a breaking change, because "
            f"Kubernetes {kubernetes} validates only the values that a request changes"
        )
    if len(findings) > _MOST_NARROWED:
        more = len(findings) - _MOST_NARROWED
        yield f"{name}: {more} more narrowing changes are warnings for the same reason"


def _owners(content: ReleaseContent | None) -> tuple[PreflightProblem, ...]:
    if content is None:
        return ()
    return tuple(
        PreflightProblem("OtherOwner", f"the release is managed by {manager}, which would undo the change")
        for manager in content.managers
    )


def _states(content: ReleaseContent | None) -> tuple[str, ...]:
    if content is None or content.release.status in ("deployed", "superseded"):
        return ()
    release = content.release
    return (f"revision {release.revision} of {release.namespace}/{release.name} is {release.status}",)


def _trial(
    request: InspectionRequest,
    running: ReleaseContent | None,
    replaced: ReleaseContent | None,
    crds: Sequence[ChartCrd],
    chart: bytes,
) -> TrialRequest:
    return TrialRequest(
        cluster_id=request.cluster.id,
        release=request.next,
        manifest=request.manifest,
        on_conflict=request.on_conflict,
        replaced=_present(replaced),
        running=_present(running),
        chart=chart,
        values=request.values,
        secret_paths=request.secret_paths,
        # Those in templates are in the manifest, as they are with the values of this cluster.
        crds=tuple(crd.definition for crd in crds if crd.location != "templates"),
        live=request.live,
    )


def _present(content: ReleaseContent | None) -> PresentRelease | None:
    if content is None:
        return None
    return PresentRelease(content.manifest, content.values, content.client_side)


def _inspection_entry(request: InspectionRequest) -> AuditEntry:
    payload = {
        "operator": request.operator.name,
        "version": request.version.version,
        "release": str(request.next),
    }
    return _entry(request.cluster, payload)


def _entry(cluster: ManagedCluster, payload: dict[str, str]) -> AuditEntry:
    """Return the entry of a trial. It has no name: the cluster may have been deleted, and its name erased, meanwhile."""
    return AuditEntry(
        actor=_ACTOR,
        action="cluster.preflight",
        object_kind="cluster",
        object_id=str(cluster.id),
        payload=payload,
    )

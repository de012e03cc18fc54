"""Plans: what a deployment would do to each cluster, made without changing anything."""

import asyncio
import hashlib
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.domain.registry.windows import judge_windows
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, OfflinePolicy
from kapsa.fleet.domain.rollout.plans import ClusterPlan, PreflightProblem, RolloutPlan
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    RollingStrategy,
    RolloutStrategy,
    StageTarget,
    stages,
)
from kapsa.fleet.domain.values import leaf_paths, merge_values, values_digest
from kapsa.fleet.orchestrator.bounded_calls import bounded
from kapsa.fleet.orchestrator.hidden_texts import shown_values
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialUnavailable
from kapsa.fleet.orchestrator.ports.plan_sources import (
    ChartRenderRequest,
    ClusterInspector,
    InspectionRequest,
    KubernetesUnsupported,
    PreflightReport,
    ReleaseRenderer,
    ValueLayers,
)
from kapsa.fleet.orchestrator.ports.rollouts import OperatorInstallation, ReleaseBundle

__all__ = ["PlanRequest", "PlannedRollout", "RolloutPlanner"]

PARALLEL = 8
# Helm's limit for the name of a release is 53; the suffix of blue-green has six characters.
LONGEST_BASE = 47


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment to plan."""

    operator: ManagedOperator
    version: OperatorVersion
    strategy: RolloutStrategy
    clusters: tuple[ManagedCluster, ...]
    installations: Mapping[uuid.UUID, OperatorInstallation] = {}
    """By cluster: the releases that the fleet left there."""
    values: Mapping[str, Any] = {}
    secret_values: Mapping[str, Any] = {}
    on_conflict: ConflictPolicy = ConflictPolicy.FAIL
    on_offline: OfflinePolicy = OfflinePolicy.WAIT
    force_reason: str = ""
    window_override_reason: str = ""
    earlier: RolloutPlan | None = None
    """The plan before, whose manifests are used again where nothing that they depend on has changed."""
    bundles: Mapping[uuid.UUID, ReleaseBundle] = {}
    now: datetime | None = None
    """The time at which windows and freezes are judged."""


class PlannedRollout(msgspec.Struct, frozen=True):
    """A plan, and the bytes that it applies to each cluster."""

    plan: RolloutPlan
    bundles: dict[uuid.UUID, ReleaseBundle]


class RolloutPlanner:
    """A maker of plans."""

    def __init__(self, values: ValueLayers, renderer: ReleaseRenderer, inspector: ClusterInspector) -> None:
        self._values = values
        self._renderer = renderer
        self._inspector = inspector

    async def plan(self, request: PlanRequest) -> PlannedRollout:
        """Return the plan of a deployment.

        Raises `InvalidInput` if it can never work, and `ClusterUnreachable` if a cluster does not answer and the
        policy is to wait for it, or its credential cannot be opened now, and `VaultUnavailable` if secret values cannot be opened now.
        """
        results = await bounded(PARALLEL, (self._reached(request, each) for each in request.clusters))
        reached = [result for result in results if isinstance(result, tuple)]
        offline = [result for result in results if isinstance(result, ClusterUnreachable)]
        withheld = [error for error in offline if isinstance(error, CredentialUnavailable)]
        if withheld:  # the cluster may be there: it is not left out, whatever the policy
            raise withheld[0]
        if offline and (request.on_offline is OfflinePolicy.WAIT or not reached):
            raise offline[0]
        return _assembled(request, reached)

    async def _reached(
        self, request: PlanRequest, cluster: ManagedCluster
    ) -> tuple[ClusterPlan, ReleaseBundle] | ClusterUnreachable:
        try:
            return await self._cluster(request, cluster)
        except CredentialUnavailable as error:
            return CredentialUnavailable(f"{cluster.name}: {error}")
        except ClusterUnreachable as error:
            return ClusterUnreachable(f"{cluster.name} does not answer: {error}")

    async def _cluster(
        self, request: PlanRequest, cluster: ManagedCluster
    ) -> tuple[ClusterPlan, ReleaseBundle]:
        layered = await self._values.layers(request.operator, cluster)
        values = merge_values(*layered.layers, request.values, request.secret_values)
        secret = layered.secret_paths | leaf_paths(request.secret_values)
        live, following = _releases(request, cluster)
        digest = values_digest(values, secret)
        rendered, report = await self._inspect(request, cluster, values, secret, (live, following))
        manifest = rendered if report.manifest is None else report.manifest
        installation = request.installations.get(cluster.id)
        ours = installation is not None and installation.revision == report.present_revision
        shown, hidden = await asyncio.to_thread(shown_values, values, secret)
        plan = ClusterPlan(
            cluster_id=cluster.id,
            cluster_name=cluster.name,
            environment=cluster.environment,
            stage=0,
            live=live,
            next=following,
            present_revision=report.present_revision,
            present_version=report.present_version,
            present_chart=installation.chart_digest if installation is not None and ours else "",
            values_digest=digest,
            manifest_digest="sha256:" + hashlib.sha256(manifest).hexdigest(),
            crds=report.crds,
            verdicts=report.verdicts,
            conflicts=report.conflicts,
            additions=report.additions,
            problems=_problems(request, report),
            diff=report.diff,
            values=shown,
            notices=(*report.notices, *_hidden_notice(hidden)),
        )
        return plan, ReleaseBundle(manifest, values, rendered if manifest != rendered else b"")

    async def _inspect(
        self,
        request: PlanRequest,
        cluster: ManagedCluster,
        values: dict[str, Any],
        secret: frozenset[tuple[str, ...]],
        releases: tuple[ReleaseRef, ReleaseRef],
    ) -> tuple[bytes, PreflightReport]:
        """Return the manifest as the chart renders it, and the answer of the cluster to it."""
        live, following = releases
        rendered = _earlier_manifest(request, cluster, values_digest(values, secret), live, following)
        if rendered is None:
            try:
                rendered = await self._render(request, cluster, following, values, renamed=live != following)
            except KubernetesUnsupported:
                return b"", _unsupported(request, cluster)
        inspection = InspectionRequest(
            cluster,
            request.operator,
            request.version,
            live,
            following,
            rendered,
            request.on_conflict,
            values,
            secret,
        )
        return rendered, _with_window(request, cluster, await self._inspector.inspect(inspection))

    async def _render(
        self,
        request: PlanRequest,
        cluster: ManagedCluster,
        release: ReleaseRef,
        values: dict[str, Any],
        *,
        renamed: bool,
    ) -> bytes:
        version = cluster.health.kubernetes_version
        digest = request.version.chart_digest
        return await self._renderer.render(
            ChartRenderRequest(digest, release, values, version, renamed, cluster.id)
        )


def _releases(request: PlanRequest, cluster: ManagedCluster) -> tuple[ReleaseRef, ReleaseRef]:
    """Return the release that runs, and the one to change."""
    operator = request.operator
    installation = request.installations.get(cluster.id)
    live = installation.release if installation else ReleaseRef(operator.name, operator.namespace)
    if not isinstance(request.strategy, BlueGreenStrategy):
        return live, live
    strategy, base = request.strategy, operator.name[:LONGEST_BASE]
    if live.namespace == strategy.green_namespace:
        return live, ReleaseRef(f"{base}-blue", strategy.blue_namespace)
    return live, ReleaseRef(f"{base}-green", strategy.green_namespace)


def _earlier_manifest(
    request: PlanRequest, cluster: ManagedCluster, digest: str, live: ReleaseRef, following: ReleaseRef
) -> bytes | None:
    """Return the manifest of the plan before if it would be rendered from the same input.

    Some charts generate certificates: rendering again would void an approval for no reason.
    """
    bundle = request.bundles.get(cluster.id)
    if (
        request.earlier is None
        or bundle is None
        or request.earlier.chart_digest != request.version.chart_digest
    ):
        return None
    for plan in request.earlier.clusters:
        same = (plan.values_digest, plan.live, plan.next) == (digest, live, following)
        if plan.cluster_id == cluster.id and same:
            return bundle.rendered or bundle.manifest or None
    return None


def _unsupported(request: PlanRequest, cluster: ManagedCluster) -> PreflightReport:
    version = request.version
    message = (
        f"{request.operator.name} {version.version} needs Kubernetes {version.facts.kube_version}, and the cluster has "
        f"{cluster.health.kubernetes_version}: upgrade the cluster, or leave it out"
    )
    return PreflightReport(0, problems=(PreflightProblem("KubeVersion", message),))


def _with_window(request: PlanRequest, cluster: ManagedCluster, report: PreflightReport) -> PreflightReport:
    """Return the report with what the maintenance windows and freezes of the cluster mean for the deployment."""
    if request.now is None:
        return report
    verdict = judge_windows(cluster.windows, cluster.freezes, request.now)
    if verdict.open:
        return report
    if request.window_override_reason:
        notice = f"{verdict.reason}; set aside: {request.window_override_reason}"
    elif verdict.opens_at is not None:
        notice = f"{verdict.reason}; the cluster is changed from {verdict.opens_at:%Y-%m-%d %H:%M %Z} on"
    else:
        problem = PreflightProblem("NeverOpen", f"{verdict.reason}, and none opens in the years to come")
        return msgspec.structs.replace(report, problems=(*report.problems, problem))
    return msgspec.structs.replace(report, notices=(notice, *report.notices))


def _hidden_notice(count: int) -> tuple[str, ...]:
    """Return a notice about values that nobody declared secret and that are hidden all the same."""
    if not count:
        return ()
    number = f"{count} values are" if count > 1 else "1 value is"
    return (f"{number} hidden that no one declared secret: each contains a secret value, or looks like one",)


def _problems(request: PlanRequest, report: PreflightReport) -> tuple[PreflightProblem, ...]:
    if request.on_conflict is not ConflictPolicy.FAIL:
        return report.problems
    conflicts = tuple(
        PreflightProblem("Conflict", f"{each.field} of {each.object} is owned by {each.manager}")
        for each in report.conflicts
    )
    return (*report.problems, *conflicts)


def _assembled(request: PlanRequest, reached: list[tuple[ClusterPlan, ReleaseBundle]]) -> PlannedRollout:
    targets = [StageTarget(plan.cluster_name, plan.environment) for plan, _ in reached]
    names = {target.name for target in targets}
    planned = stages(_ordered(request.strategy, names), targets)
    number = {name: stage.number for stage in planned for name in stage.clusters}
    clusters = tuple(msgspec.structs.replace(plan, stage=number[plan.cluster_name]) for plan, _ in reached)
    plan = RolloutPlan(
        operator_id=request.operator.id,
        operator_name=request.operator.name,
        version=request.version.version,
        chart_digest=request.version.chart_digest,
        strategy=request.strategy,
        on_conflict=request.on_conflict,
        on_offline=request.on_offline,
        stages=planned,
        clusters=tuple(sorted(clusters, key=lambda each: (each.stage, each.cluster_name))),
        skipped=tuple(sorted(each.name for each in request.clusters if each.name not in names)),
        force_reason=request.force_reason,
        window_override_reason=request.window_override_reason,
    )
    return PlannedRollout(plan, {each.cluster_id: bundle for each, bundle in reached})


def _ordered(strategy: RolloutStrategy, names: set[str]) -> RolloutStrategy:
    """Return the strategy without the clusters that are left out: offline ones, or those that a retry need not touch."""
    if not isinstance(strategy, RollingStrategy):
        return strategy
    order = tuple(name for name in strategy.cluster_order if name in names)
    return msgspec.structs.replace(strategy, cluster_order=order)

"""The change that each cluster would see: from the CRD that it has now, with the resources that it has now."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kapsa.fleet.domain.crds import CrdComparison, CrdFinding, summarize
from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.rollout.plans import CrdChange, LiveVerdict
from kapsa.fleet.orchestrator.crds.documents import compare_documents
from kapsa.fleet.orchestrator.crds.live_verdict import judge_resources, verdict_line
from kapsa.fleet.orchestrator.crds.requests import ClusterCrdChange
from kapsa.fleet.orchestrator.ports.crds import CrdOnCluster, LiveResources, ResourcesUnreadable

__all__ = ["ClusterChanges", "crd_change"]

_PARALLEL = 5
"""Clusters that are read at the same time."""


class LiveChange(msgspec.Struct, frozen=True):
    """The comparison with the CRD of a cluster, and the verdict on its resources."""

    comparison: CrdComparison
    verdict: LiveVerdict
    ratcheted: tuple[CrdFinding, ...] = ()
    """The findings that would be breaking on a cluster without validation ratcheting."""


class ClusterChanges:
    """The reader of clusters for the validation of a CRD."""

    def __init__(self, live: LiveResources) -> None:
        self._live = live

    async def read(
        self, clusters: Sequence[CrdOnCluster], definition: Mapping[str, Any]
    ) -> tuple[ClusterCrdChange, ...]:
        """Return the change on each of the clusters, a few of which are read at a time."""
        slots = asyncio.Semaphore(_PARALLEL)

        async def one(cluster: CrdOnCluster) -> ClusterCrdChange:
            async with slots:
                return await self._change(cluster, definition)

        return tuple(await asyncio.gather(*(one(cluster) for cluster in clusters)))

    async def live_change(
        self, cluster_id: uuid.UUID, kubernetes_version: str, definition: Mapping[str, Any]
    ) -> LiveChange | None:
        """Return the change on one cluster, None if it does not have the CRD.

        Raises `ResourcesUnreadable` if its CRD cannot be read.
        """
        name = str(definition["metadata"]["name"])
        present = await self._live.definition(cluster_id, name)
        if present is None:
            return None
        try:
            comparison = await asyncio.to_thread(compare_documents, present, definition)
        except InvalidInput as error:
            raise ResourcesUnreadable(f"the CRD on the cluster cannot be compared: {error}") from error
        verdict = await judge_resources(definition, self._live.pages(cluster_id, present))
        judged = comparison.on_cluster(kubernetes_version)
        pairs = zip(comparison.findings, judged.findings, strict=True)
        softened = tuple(after for before, after in pairs if after.severity is not before.severity)
        return LiveChange(judged, verdict, softened)

    async def _change(self, cluster: CrdOnCluster, definition: Mapping[str, Any]) -> ClusterCrdChange:
        try:
            change = await self.live_change(cluster.cluster_id, cluster.kubernetes_version, definition)
        except ResourcesUnreadable as error:
            return _unread(cluster, f"{cluster.cluster} could not be read: {error}")
        if change is None:
            return _unread(cluster, f"{cluster.cluster} does not have the CRD any more")
        comparison, verdict = change.comparison, change.verdict
        return ClusterCrdChange(
            cluster.cluster_id,
            cluster.cluster,
            cluster.environment,
            cluster.kubernetes_version,
            comparison.severity,
            comparison.one_way,
            comparison.blocked,
            summarize(comparison.findings),
            verdict,
            verdict_line(verdict, cluster.cluster),
        )


def _unread(cluster: CrdOnCluster, line: str) -> ClusterCrdChange:
    return ClusterCrdChange(
        cluster.cluster_id,
        cluster.cluster,
        cluster.environment,
        cluster.kubernetes_version,
        severity=None,
        one_way=False,
        blocked=False,
        summary=None,
        verdict=None,
        line=line,
    )


def crd_change(comparison: CrdComparison) -> CrdChange:
    """Return a comparison as a plan shows and hashes it."""
    headlines = sorted(finding.headline for finding in comparison.findings)
    return CrdChange(comparison.name, comparison.severity.value, tuple(headlines), comparison.one_way)

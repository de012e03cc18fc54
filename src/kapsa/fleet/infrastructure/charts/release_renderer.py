"""Rendering of the charts that are kept by digest, by the real helm in isolation."""

import asyncio
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS
from kapsa.adapters.helm.renderer import render_manifest
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.adapters.redaction import redact
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.kubernetes_versions import UNSUPPORTED
from kapsa.fleet.infrastructure.charts.scopes import cluster_scoped_kinds, is_crd
from kapsa.fleet.infrastructure.charts.second_release import second_release
from kapsa.fleet.infrastructure.charts.value_texts import texts_in
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.plan_sources import ChartRenderRequest, KubernetesUnsupported
from kapsa.fleet.orchestrator.ports.transactions import Transactions

__all__ = ["StoredChartRenderer"]

ApiVersions = Callable[[uuid.UUID], Awaitable[tuple[str, ...]]]
"""The API versions that a cluster serves. Raises `ClusterUnreachable` if it does not answer."""
_RENDERS = 2
"""Renders at the same time. Each is one run of helm with 65 MB."""


class StoredChartRenderer:
    """A renderer of stored archives: no repository is asked."""

    def __init__(
        self,
        transactions: Transactions,
        operators: OperatorRepository,
        api_versions: ApiVersions | None = None,
    ) -> None:
        self._transactions = transactions
        self._api_versions = api_versions
        self._operators = operators
        self._limits = ProcessLimits(seconds=60, output_bytes=32 * 1024 * 1024)
        self._slots = asyncio.Semaphore(_RENDERS)

    async def render(self, request: ChartRenderRequest) -> bytes:
        """Return the manifest, hooks included.

        Raises InvalidInput if the chart does not render with these values. Helm may quote values, which
        the message hides. For blue-green it is raised, too, if an object cannot be renamed or cannot be at rest.
        """
        manifest = await self._render(request)
        if not request.suffix_names:
            return manifest
        async with self._transactions.transaction() as connection:
            crds = await self._operators.crds_of_chart(connection, request.chart_digest)
        definitions = [each.definition for each in crds]
        try:
            return await asyncio.to_thread(_second_release, manifest, request.release, definitions)
        except ExternalError as error:  # Helm accepts more than this reads, such as a key that is repeated
            raise _unrenderable(_reason(error, request)) from None

    async def _render(self, request: ChartRenderRequest) -> bytes:
        async with self._transactions.transaction() as connection:
            content = await self._operators.archive(connection, request.chart_digest)
        if content is None:
            raise InvalidInput(f"the archive {request.chart_digest} is not stored: add the version again")
        served: tuple[str, ...] = ()
        if self._api_versions is not None and request.cluster_id is not None:
            served = await self._api_versions(request.cluster_id)
        async with self._slots:
            with tempfile.TemporaryDirectory(prefix="kapsa-chart-") as private:
                archive = await asyncio.to_thread(read_archive, content)
                directory = await asyncio.to_thread(archive.unpack, Path(private))
                try:
                    return await render_manifest(
                        directory,
                        request.values,
                        release=request.release.name,
                        namespace=request.release.namespace,
                        limits=self._limits,
                        kube_version=request.kubernetes_version,
                        api_versions=served,
                    )
                except ExternalError as error:
                    reason = _reason(error, request)
                    if UNSUPPORTED in reason:
                        raise KubernetesUnsupported(reason) from None
                    raise _unrenderable(reason) from None


def _reason(error: ExternalError, request: ChartRenderRequest) -> str:
    """Return the text of an error without the values, which Helm may quote."""
    return redact(str(error), texts_in(request.values))


def _unrenderable(reason: str) -> InvalidInput:
    message = f"the chart does not render with these values: {reason}"
    return InvalidInput(message, InvalidField("/values", message))


def _second_release(manifest: bytes, release: ReleaseRef, crds: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a manifest for the release next to the one that runs: names of its own, and everything at rest.

    It is written as JSON, which is YAML that every parser reads alike.
    """
    objects = load_objects(manifest, "the rendered chart", MANIFEST_LIMITS)
    kinds = cluster_scoped_kinds([*crds, *(each for each in objects if is_crd(each))])
    return b"".join(_document(each) for each in second_release(objects, release, kinds))


def _document(manifest: dict[str, Any]) -> bytes:
    return b"---\n" + msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"

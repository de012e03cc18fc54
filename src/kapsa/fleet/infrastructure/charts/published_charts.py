"""Charts from HTTP repositories, OCI registries and uploads, inspected by the real helm in isolation.

Whatever is wrong with a chart is the fault of a request, so each failure is InvalidInput that names the field and
the reason, without secrets.
"""

import asyncio
import functools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kapsa.adapters.errors import ExternalError, Refused
from kapsa.adapters.helm.chart_archive import ArchiveLimits, ChartArchive, read_archive
from kapsa.adapters.helm.chart_metadata import ChartMetadata
from kapsa.adapters.helm.chart_repository import ChartRepository, RepositoryCredentials
from kapsa.adapters.helm.linter import lint_chart
from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS
from kapsa.adapters.helm.renderer import render_chart, render_manifest
from kapsa.adapters.http.client import HttpClient
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.adapters.oci.chart_artifact import chart_reference, chart_versions, pull_chart
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.adapters.redaction import redact
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.registry.operators import ChartFacts, ChartSource, HttpChart, OciChart, UploadedChart
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.domain.values import merge_values
from kapsa.fleet.domain.versions import is_prerelease, is_version, same_version, version_order
from kapsa.fleet.infrastructure.charts.differences import differences
from kapsa.fleet.infrastructure.charts.facts import Objects, Renders, chart_crds, chart_facts
from kapsa.fleet.infrastructure.charts.kubernetes_versions import accepted_version
from kapsa.fleet.infrastructure.charts.scopes import is_crd
from kapsa.fleet.infrastructure.charts.value_texts import texts_in
from kapsa.fleet.orchestrator.ports.charts import ChartCrd, InspectedChart, RepositoryLogin

__all__ = ["PublishedCharts"]

_RELEASES = ("kapsa-probe-one", "kapsa-probe-two")
_INSPECTIONS = 2
"""Inspections at the same time. Each runs helm five times, with 65 MB and half a second of CPU time."""


class PublishedCharts:
    """Charts behind the network, and their inspection."""

    def __init__(
        self,
        http: HttpClient,
        *,
        allow_http: bool = False,
        limits: ArchiveLimits | None = None,
        process_limits: ProcessLimits | None = None,
    ) -> None:
        self._http = http
        self._allow_http = allow_http
        self._limits = limits or ArchiveLimits()
        self._process_limits = process_limits or ProcessLimits(seconds=60, output_bytes=32 * 1024 * 1024)
        self._slots = asyncio.Semaphore(_INSPECTIONS)

    async def fetch(self, source: ChartSource, version: str, login: RepositoryLogin | None) -> bytes:
        """Return the archive of a version, or of the newest one that is not a prerelease if it is empty.

        Raises InvalidInput with the reason if it cannot be fetched.
        """
        secrets = (login.password, login.token) if login is not None else ()
        match source:
            case HttpChart():
                with _invalid("/source/repository", secrets):
                    return await self._from_repository(source, version, login)
            case OciChart():
                with _invalid("/source/reference", secrets):
                    return await self._from_registry(source, version, login)
            case UploadedChart():
                raise InvalidInput("the chart is uploaded: there is no repository to fetch it from")

    async def _from_repository(self, source: HttpChart, version: str, login: RepositoryLogin | None) -> bytes:
        credentials = RepositoryCredentials(login.username, login.password, login.token) if login else None
        repository = ChartRepository(
            source.repository, self._http, credentials=credentials, allow_http=self._allow_http
        )
        entries = {entry.version: entry for entry in reversed(await repository.versions(source.chart))}
        chosen = _choose(list(entries), version, f"{source.chart} in {source.repository}")
        return await repository.download(entries[chosen], limit=self._limits.packed_bytes)

    async def _from_registry(self, source: OciChart, version: str, login: RepositoryLogin | None) -> bytes:
        chart = chart_reference(source.reference)
        credentials = None
        if login is not None:
            credentials = RegistryCredentials(
                username=login.username, password=login.password, identity_token=login.token
            )
        registry = ImageRegistry(
            chart.registry, self._http, credentials=credentials, insecure=self._allow_http
        )
        if not version:
            version = _choose(await chart_versions(registry, chart), "", source.reference)
        return await pull_chart(registry, chart, version, limit=self._limits.packed_bytes)

    async def inspect(
        self,
        content: bytes,
        *,
        chart: str,
        version: str,
        namespace: str,
        values: Mapping[str, Any],
        secret_values: Mapping[str, Any],
    ) -> InspectedChart:
        """Check, lint and render an archive that must have this chart, and this version unless it is empty.

        Raises InvalidInput with the reason if it is hostile, malformed, or another chart.
        """
        secrets = tuple(texts_in(secret_values))
        async with self._slots:
            with _invalid("/archive", ()):
                archive = await asyncio.to_thread(read_archive, content, self._limits)
            _check_identity(archive, chart, version)
            with _invalid("/source", secrets), tempfile.TemporaryDirectory(prefix="kapsa-chart-") as private:
                directory = await asyncio.to_thread(archive.unpack, Path(private))
                return await self._inspect(archive, directory, namespace, merge_values(values, secret_values))

    async def compare(
        self,
        content: bytes,
        manifest: str,
        *,
        release: str,
        namespace: str,
        values: Mapping[str, Any],
        kubernetes_version: str = "",
        api_versions: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Render an archive, and return the objects in which it differs from a manifest: names, and no content.

        The chart sees a cluster of this version that serves these APIs.

        Raises InvalidInput if it does not render.
        """
        async with self._slots:
            with _invalid("/operator", tuple(texts_in(values))), tempfile.TemporaryDirectory() as private:
                archive = await asyncio.to_thread(read_archive, content, self._limits)
                directory = await asyncio.to_thread(archive.unpack, Path(private))
                rendered = await render_chart(
                    directory,
                    values,
                    release=release,
                    namespace=namespace,
                    limits=self._process_limits,
                    kube_version=kubernetes_version,
                    api_versions=api_versions,
                )
                installed = await asyncio.to_thread(load_objects, manifest.encode(), "the release")
        return differences(rendered.objects, installed, namespace)

    async def _inspect(
        self, archive: ChartArchive, directory: Path, namespace: str, values: Mapping[str, Any]
    ) -> InspectedChart:
        limits = self._process_limits
        version = await accepted_version(archive.metadata.kube_version, limits)
        warnings = await lint_chart(
            directory, values, namespace=namespace, limits=limits, kube_version=version
        )
        render = functools.partial(
            render_manifest, directory, values, namespace=namespace, limits=limits, kube_version=version
        )
        first = await render(release=_RELEASES[0])
        again = await render(release=_RELEASES[0])
        renamed = await render(release=_RELEASES[1])
        complete = await render(release=_RELEASES[0], include_crds=True)
        # Parsing megabytes of CRDs takes seconds: not on the event loop.
        crds, facts = await asyncio.to_thread(
            _learn, archive.metadata, namespace, first, renamed, complete, deterministic=first == again
        )
        return InspectedChart(
            archive.content, archive.digest, archive.metadata.version, facts, crds, warnings
        )


def _learn(
    metadata: ChartMetadata,
    namespace: str,
    first: bytes,
    renamed: bytes,
    complete: bytes,
    *,
    deterministic: bool,
) -> tuple[tuple[ChartCrd, ...], ChartFacts]:
    objects = _objects(first)
    renders = Renders(ReleaseRef(_RELEASES[0], namespace), objects, _objects(renamed), deterministic)
    if complete.endswith(first):  # helm prints the files of crds/ first
        folder = [each for each in _objects(complete[: len(complete) - len(first)]) if is_crd(each)]
    else:
        folder = _crds_of_folder(_objects(complete), objects)
    crds = chart_crds(folder, objects)
    return crds, chart_facts(metadata, crds, renders)


def _objects(manifest: bytes) -> Objects:
    return tuple(load_objects(manifest, "the rendered chart", MANIFEST_LIMITS))


@contextmanager
def _invalid(field: str, secrets: tuple[str, ...]) -> Iterator[None]:
    """Turn the failure of an external system into InvalidInput for a field."""
    try:
        yield
    except ExternalError as error:
        message = redact(f"{error}. {error.hint}" if error.hint else str(error), secrets)
        raise InvalidInput(message, InvalidField(field, message)) from None


def _choose(versions: list[str], version: str, what: str) -> str:
    """Return the version as the repository writes it: the one that was asked for, or the newest release."""
    valid = [each for each in versions if is_version(each)]
    if version:
        matches = [each for each in valid if same_version(each, version)]
        if not matches:
            raise Refused(f"{what} has no version {version}; its newest is {_newest(valid) or 'unknown'}")
        return matches[0]
    newest = _newest([each for each in valid if not is_prerelease(each)])
    if not newest:
        raise Refused(f"{what} has no version that is not a prerelease", hint="Name the version")
    return newest


def _newest(versions: list[str]) -> str:
    return max(versions, key=version_order, default="")


def _check_identity(archive: ChartArchive, chart: str, version: str) -> None:
    metadata = archive.metadata
    if metadata.name != chart:
        message = f"the archive has the chart {metadata.name!r}, not {chart!r}"
        raise InvalidInput(message, InvalidField("/source/chart", message))
    if version and not same_version(metadata.version, version):
        message = f"the archive has version {metadata.version}, not {version}"
        raise InvalidInput(message, InvalidField("/version", message))
    if metadata.library:
        message = f"{chart} is a library chart, which cannot be installed"
        raise InvalidInput(message, InvalidField("/source/chart", message))


def _crds_of_folder(complete: Objects, rendered: Objects) -> list[dict[str, Any]]:
    """Return the CRDs that only a render with `crds/` has. One that is in both is there twice."""
    in_templates = Counter(each["metadata"].get("name") for each in rendered if is_crd(each))
    folder = []
    for each in complete:
        if is_crd(each):
            name = each["metadata"].get("name")
            if in_templates[name]:
                in_templates[name] -= 1
            else:
                folder.append(each)
    return folder

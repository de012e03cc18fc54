"""The inventory of a cluster: Helm releases and CRDs, read within limits, and who else manages them.

Secrets are listed by their metadata first. The content is read for the newest revision of each release alone.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.helm.release_secret import (
    MANIFEST_LIMITS,
    RELEASE_SECRET,
    SERVER_SIDE,
    HelmRelease,
    read_release,
)
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.fleet.domain.registry.inventory import (
    ClusterInventory,
    ForeignManager,
    InstalledCrd,
    InstalledRelease,
    foreign_manager,
)
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL
from kapsa.fleet.orchestrator.ports.clusters import ReleaseContent
from kapsa.runtime import ApiError, Client, Forbidden, ListOptions, NotFound, UnknownKind

__all__ = ["read_inventory", "read_release_content"]

_MOST_RELEASES = 2000
_MOST_OBJECTS = 500
_PARALLEL = 8
_FLUX = re.compile(r"""helm\.toolkit\.fluxcd\.io/(name|namespace)["']?:\s*["']?([-a-z0-9.]+)""")
_FLUX_RELEASE = "helm.toolkit.fluxcd.io/v2/HelmRelease"
_SECRETS: ListOptions = {"label_selector": {"owner": "helm"}, "metadata_only": True, "limit": 500}


async def read_inventory(client: Client, now: datetime) -> ClusterInventory:
    """Return the releases and CRDs of a cluster. What may not be read is a problem, not an error."""
    problems: list[str] = []
    releases = await _releases(client, problems)
    crds = await _crds(client, problems)
    return ClusterInventory(now, tuple(releases), tuple(crds), tuple(problems))


async def read_release_content(client: Client, namespace: str, name: str) -> ReleaseContent | None:
    """Return a release with its values, its manifest, and the other managers of its objects."""
    options: ListOptions = {
        **_SECRETS,
        "namespace": namespace,
        "label_selector": {"owner": "helm", "name": name},
    }
    newest = _newest([each async for page in client.pages("v1/Secret", **options) for each in page.items])
    if not newest:
        return None
    secret = await client.get("v1/Secret", newest[0]["metadata"]["name"], namespace=namespace)
    record = read_release(secret)
    claims = await _flux_releases(client)
    installed = _installed(record, claims)
    managers = [installed.manager] if installed.manager else []
    managers += await _live_managers(client, record)
    return ReleaseContent(
        installed,
        record.values,
        record.manifest,
        tuple(dict.fromkeys(managers)),
        client_side=record.apply_method != SERVER_SIDE,
    )


async def _releases(client: Client, problems: list[str]) -> list[InstalledRelease]:
    listed: list[dict[str, Any]] = []
    try:
        async for page in client.pages("v1/Secret", **_SECRETS):
            listed += page.items
    except Forbidden as error:
        problems.append(f"Helm releases cannot be read: {error}")
        return []
    newest = _newest(listed)
    if len(newest) > _MOST_RELEASES:
        problems.append(f"the cluster has {len(newest)} Helm releases; the first {_MOST_RELEASES} are listed")
    claims = await _flux_releases(client)
    slots = asyncio.Semaphore(_PARALLEL)

    async def read(metadata: Mapping[str, Any]) -> InstalledRelease | None:
        async with slots:
            return await _read_one(client, metadata, claims, problems)

    releases = await asyncio.gather(*(read(each["metadata"]) for each in newest[:_MOST_RELEASES]))
    return [each for each in releases if each is not None]


async def _read_one(
    client: Client,
    metadata: Mapping[str, Any],
    claims: Mapping[tuple[str, str], ForeignManager],
    problems: list[str],
) -> InstalledRelease | None:
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    try:
        secret = await client.get("v1/Secret", name, namespace=namespace)
        if secret.get("type") != RELEASE_SECRET:
            return None
        # Unpacking and parsing a large release takes a while; the loop has other clusters to serve.
        return await asyncio.to_thread(lambda: _installed(read_release(secret), claims))
    except NotFound:
        return None
    except (ExternalError, ApiError) as error:
        problems.append(f"Secret {namespace}/{name}: {error}")
        labels = metadata.get("labels") or {}
        return InstalledRelease(
            str(labels.get("name", name)),
            namespace,
            _revision(metadata),
            "unreadable",
            manager=foreign_manager(metadata),
        )


def _newest(secrets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Secret of the newest revision of each release, in the order of namespace and name."""
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for secret in secrets:
        metadata = secret["metadata"]
        key = (str(metadata.get("namespace", "")), str((metadata.get("labels") or {}).get("name", "")))
        if key[1] and (key not in newest or _revision(metadata) > _revision(newest[key]["metadata"])):
            newest[key] = secret
    return [newest[key] for key in sorted(newest)]


def _revision(metadata: Mapping[str, Any]) -> int:
    text = str((metadata.get("labels") or {}).get("version", ""))
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _installed(record: HelmRelease, claims: Mapping[tuple[str, str], ForeignManager]) -> InstalledRelease:
    return InstalledRelease(
        name=record.name,
        namespace=record.namespace,
        revision=record.revision,
        status=record.status,
        chart=record.chart,
        chart_version=record.chart_version,
        app_version=record.app_version,
        last_deployed=record.last_deployed,
        ours=DEPLOYMENT_LABEL in record.labels,
        manager=claims.get((record.namespace, record.name))
        or foreign_manager({"labels": record.labels})
        or _flux_in_manifest(record.manifest),
    )


def _flux_in_manifest(manifest: str) -> ForeignManager | None:
    """Return Flux if its labels are in the stored manifest, where its post-renderer has written them."""
    marks = dict(_FLUX.findall(manifest))
    return (
        ForeignManager("Flux", f"HelmRelease {marks.get('namespace', '')}/{marks['name']}")
        if "name" in marks
        else None
    )


async def _flux_releases(client: Client) -> dict[tuple[str, str], ForeignManager]:
    """Return the releases that Flux's HelmReleases describe, by namespace and name."""
    claims: dict[tuple[str, str], ForeignManager] = {}
    try:
        async for page in client.pages(_FLUX_RELEASE, limit=500):
            for each in page.items:
                claims[_flux_target(each)] = ForeignManager(
                    "Flux",
                    f"HelmRelease {each['metadata'].get('namespace', '')}/{each['metadata'].get('name', '')}",
                )
    except (UnknownKind, NotFound, Forbidden):
        pass
    return claims


def _flux_target(release: Mapping[str, Any]) -> tuple[str, str]:
    """Return the namespace and name of the Helm release that a HelmRelease makes, by Flux's own rules."""
    spec, metadata = release.get("spec") or {}, release["metadata"]
    target = str(spec.get("targetNamespace") or "")
    default = f"{target}-{metadata.get('name', '')}" if target else str(metadata.get("name", ""))
    storage = str(spec.get("storageNamespace") or metadata.get("namespace", ""))
    return storage, str(spec.get("releaseName") or default)


async def _crds(client: Client, problems: list[str]) -> list[InstalledCrd]:
    crds: list[InstalledCrd] = []
    try:
        async for page in client.pages("apiextensions.k8s.io/v1/CustomResourceDefinition", limit=50):
            crds += [_crd(each) for each in page.items]
    except Forbidden as error:
        problems.append(f"CRDs cannot be read: {error}")
    return sorted(crds, key=lambda each: each.name)


def _crd(manifest: Mapping[str, Any]) -> InstalledCrd:
    spec, metadata = manifest["spec"], manifest["metadata"]
    versions = spec.get("versions") or []
    annotations = metadata.get("annotations") or {}
    release = annotations.get("meta.helm.sh/release-name", "")
    return InstalledCrd(
        name=metadata["name"],
        kind=spec["names"]["kind"],
        scope=spec["scope"],
        versions=tuple(each["name"] for each in versions if each.get("served")),
        storage_version=next((each["name"] for each in versions if each.get("storage")), ""),
        stored_versions=tuple((manifest.get("status") or {}).get("storedVersions") or ()),
        release=f"{annotations.get('meta.helm.sh/release-namespace', '')}/{release}" if release else "",
        manager=foreign_manager(metadata),
    )


async def _live_managers(client: Client, record: HelmRelease) -> list[ForeignManager]:
    """Return the other managers of the objects that a release has made, by the marks of the live objects."""
    try:
        objects = load_objects(record.manifest.encode(), "the manifest of the release", MANIFEST_LIMITS)
    except ExternalError:
        return []
    slots = asyncio.Semaphore(_PARALLEL)

    async def judge(manifest: Mapping[str, Any]) -> ForeignManager | None:
        metadata = manifest["metadata"]
        async with slots:
            try:
                live = await client.get(
                    f"{manifest['apiVersion']}/{manifest['kind']}",
                    str(metadata.get("name", "")),
                    namespace=str(metadata.get("namespace") or record.namespace),
                    metadata_only=True,
                )
            except (ApiError, UnknownKind):
                return None
        return foreign_manager(live["metadata"])

    return [each for each in await asyncio.gather(*map(judge, objects[:_MOST_OBJECTS])) if each is not None]

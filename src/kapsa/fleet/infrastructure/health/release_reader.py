"""Releases: the deployed revision, and which objects it has. Contents are cached by the Secret's version."""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS, read_release
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL, HelmStatus, ReleaseRef
from kapsa.runtime import Client, ListOptions

__all__ = ["DeployedRelease", "ReleaseObject", "ReleaseReader"]

_MOST_CACHED = 2000


class ReleaseObject(msgspec.Struct, frozen=True):
    """An object in the manifest of a release."""

    api_version: str
    kind: str
    namespace: str
    """The namespace, also where the manifest leaves it out. Cluster-scoped kinds have that of the release."""
    name: str


class DeployedRelease(msgspec.Struct, frozen=True):
    """The deployed revision of a release."""

    ref: ReleaseRef
    revision: int
    deployment: str
    """The deployment that its labels name; empty if the fleet did not make it."""
    objects: tuple[ReleaseObject, ...] = ()

    def of_kind(self, *kinds: str) -> list[ReleaseObject]:
        """Return the objects of some kinds."""
        return [each for each in self.objects if each.kind in kinds]


class ReleaseReader:
    """A reader of deployed releases. A release that has not changed is not read again."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[uuid.UUID, str, str], DeployedRelease] = OrderedDict()

    async def deployed(
        self, client: Client, cluster_id: uuid.UUID, release: ReleaseRef
    ) -> DeployedRelease | None:
        """Return the newest deployed revision of a release, None if there is none."""
        options: ListOptions = {
            "namespace": release.namespace,
            "label_selector": {"owner": "helm", "name": release.name, "status": HelmStatus.DEPLOYED.value},
            "metadata_only": True,
        }
        listed = (await client.list("v1/Secret", **options)).items
        newest = max((each["metadata"] for each in listed), key=_revision, default=None)
        if newest is None:
            return None
        key = (cluster_id, str(newest.get("uid", "")), str(newest.get("resourceVersion", "")))
        parsed = self._cached.get(key)
        if parsed is None:
            secret = await client.get("v1/Secret", newest["name"], namespace=release.namespace)
            # Unpacking and parsing a large release takes a while; the loop has other clusters to serve.
            parsed = await asyncio.to_thread(_parsed, release, secret)
            self._keep(key, parsed)
        return parsed

    def _keep(self, key: tuple[uuid.UUID, str, str], release: DeployedRelease) -> None:
        self._cached[key] = release
        while len(self._cached) > _MOST_CACHED:
            self._cached.popitem(last=False)


def _revision(metadata: Mapping[str, Any]) -> int:
    text = str((metadata.get("labels") or {}).get("version", ""))
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _parsed(release: ReleaseRef, secret: Mapping[str, Any]) -> DeployedRelease:
    record = read_release(secret)
    objects = load_objects(record.manifest.encode(), f"the manifest of release {release}", MANIFEST_LIMITS)
    return DeployedRelease(
        release,
        record.revision,
        record.labels.get(DEPLOYMENT_LABEL, ""),
        tuple(_object(each, release.namespace) for each in objects),
    )


def _object(manifest: Mapping[str, Any], namespace: str) -> ReleaseObject:
    metadata = manifest.get("metadata") or {}
    return ReleaseObject(
        str(manifest.get("apiVersion", "")),
        str(manifest.get("kind", "")),
        str(metadata.get("namespace") or namespace),
        str(metadata.get("name", "")),
    )

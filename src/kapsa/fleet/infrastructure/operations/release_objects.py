"""The objects of a release, from the record that Helm keeps of the deployed revision in the cluster."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS, RELEASE_SECRET, HelmRelease, read_release
from kapsa.adapters.manifests.yaml_documents import load_objects
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused
from kapsa.runtime import Client, ListOptions, NotFound

__all__ = [
    "ReleaseObjects",
    "group_kind",
    "kind_of",
    "owned_services",
    "read_objects",
    "require_owned",
    "scoped_namespace",
]

Manifest = dict[str, Any]
CONTROLLERS = frozenset({("apps", "Deployment"), ("apps", "StatefulSet")})
WEBHOOK_CONFIGURATIONS = frozenset(
    {
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    }
)


class ReleaseObjects(msgspec.Struct, frozen=True):
    """One deployed revision, and the objects of its manifest."""

    release: ReleaseRef
    record: HelmRelease
    objects: tuple[Manifest, ...]

    def controllers(self) -> Iterator[Manifest]:
        """Yield the Deployments and StatefulSets."""
        return self._of(CONTROLLERS)

    def webhook_configurations(self) -> Iterator[Manifest]:
        """Yield the mutating and validating webhook configurations."""
        return self._of(WEBHOOK_CONFIGURATIONS)

    def named(self, kind: str) -> Iterator[Manifest]:
        """Yield the objects of a kind, whatever its group."""
        return (each for each in self.objects if each["kind"] == kind)

    def namespace_of(self, manifest: Mapping[str, Any]) -> str:
        """Return the namespace of a namespaced object of the release."""
        return scoped_namespace(manifest, self.release)

    def _of(self, kinds: Iterable[tuple[str, str]]) -> Iterator[Manifest]:
        chosen = frozenset(kinds)
        return (each for each in self.objects if group_kind(each) in chosen)


async def read_objects(client: Client, release: ReleaseRef) -> ReleaseObjects | None:
    """Return the newest deployed revision of a release, or its newest one if none is; None if it is not installed."""
    options: ListOptions = {
        "namespace": release.namespace,
        "label_selector": {"owner": "helm", "name": release.name},
        "metadata_only": True,
        "limit": 100,
    }
    secrets = [each async for page in client.pages("v1/Secret", **options) for each in page.items]
    if not secrets:
        return None
    name = max(secrets, key=_rank)["metadata"]["name"]
    try:
        secret = await client.get("v1/Secret", name, namespace=release.namespace)
    except NotFound:
        return None
    if secret.get("type") != RELEASE_SECRET:
        return None
    # A large release takes a while to unpack and parse; the loop has other clusters to serve.
    return await asyncio.to_thread(_parsed, secret, release)


def _parsed(secret: Mapping[str, Any], release: ReleaseRef) -> ReleaseObjects:
    record = read_release(secret)
    objects = load_objects(record.manifest.encode(), f"the manifest of {release}", MANIFEST_LIMITS)
    return ReleaseObjects(release, record, tuple(objects))


def _rank(secret: Mapping[str, Any]) -> tuple[bool, int]:
    labels = secret["metadata"].get("labels") or {}
    revision = str(labels.get("version", ""))
    return labels.get("status") == "deployed", int(revision) if revision.isdecimal() else 0


def require_owned(live: Mapping[str, Any], release: ReleaseRef) -> None:
    """Raise `ClusterRefused` unless a live object carries Helm's marks of the release.

    A tenant with the right to write Secrets in the namespace of a release can forge its record, and name any object.
    """
    if not _is_owned(live, release):
        metadata = live["metadata"]
        where = (
            f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        )
        message = f"{live['kind']} {where} is in the record of release {release}, and does not carry its annotations"
        raise ClusterRefused(f"{message}: it is left alone")


async def owned_services(client: Client, installed: ReleaseObjects) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the Services that belong to a release."""
    services: set[tuple[str, str]] = set()
    for each in installed.named("Service"):
        namespace, name = installed.namespace_of(each), str(each["metadata"]["name"])
        try:
            live = await client.get("v1/Service", name, namespace=namespace)
        except NotFound:
            continue
        if _is_owned(live, installed.release):
            services.add((namespace, name))
    return frozenset(services)


def _is_owned(live: Mapping[str, Any], release: ReleaseRef) -> bool:
    annotations = live["metadata"].get("annotations") or {}
    marks = (annotations.get("meta.helm.sh/release-name"), annotations.get("meta.helm.sh/release-namespace"))
    return marks == (release.name, release.namespace)


def group_kind(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the group and the kind of an object."""
    group, slash, _ = str(manifest["apiVersion"]).partition("/")
    return (group if slash else "", str(manifest["kind"]))


def kind_of(manifest: Mapping[str, Any]) -> str:
    """Return the kind of an object as the client names it."""
    return f"{manifest['apiVersion']}/{manifest['kind']}"


def scoped_namespace(manifest: Mapping[str, Any], release: ReleaseRef) -> str:
    """Return the namespace of an object: its own, or that of the release."""
    return str(manifest["metadata"].get("namespace") or release.namespace)

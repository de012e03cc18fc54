"""Custom resources of an operator, read page by page and judged as kstatus does. Those that are current are counted only."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.adapters.manifests.health import ObjectHealth, object_health
from kapsa.fleet.domain.health.resources import KindFacts, PendingResource, ResourceState, last_writes
from kapsa.runtime import Client, NotFound

__all__ = ["CrdContent", "CrdVersion", "read_crd", "read_kind"]

_DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_PAGE = 500
_MOST_RESOURCES = 5000
"""Resources of a kind that one sweep reads. The share of a larger kind is that of its first ones, by name."""


class CrdVersion(msgspec.Struct, frozen=True):
    """A version of a CRD."""

    name: str
    served: bool = False
    storage: bool = False
    subresources: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class _Names(msgspec.Struct, frozen=True):
    kind: str
    plural: str


class _Spec(msgspec.Struct, frozen=True):
    group: str
    names: _Names
    scope: str
    versions: tuple[CrdVersion, ...]
    conversion: dict[str, Any] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class CrdContent(msgspec.Struct, frozen=True):
    """A CRD of a cluster."""

    metadata: _Metadata
    spec: _Spec

    @property
    def stored(self) -> CrdVersion:
        """The version to read resources in: the stored one if it is served, else any that is."""
        served = [each for each in self.spec.versions if each.served]
        return next((each for each in served if each.storage), served[0] if served else self.spec.versions[0])

    def kind(self, version: CrdVersion) -> str:
        """Return the kind in a version, as the client names it."""
        return f"{self.spec.group}/{version.name}/{self.spec.names.kind}"

    @property
    def namespaced(self) -> bool:
        """True if its resources are in namespaces."""
        return self.spec.scope == "Namespaced"

    @property
    def converts(self) -> bool:
        """True if a webhook converts its resources."""
        return (self.spec.conversion or {}).get("strategy") == "Webhook"


class _Write(msgspec.Struct, frozen=True):
    """The last write of one field manager."""

    subresource: str = ""
    time: str = ""


class _ResourceMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    managed_fields: tuple[_Write, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    metadata: _ResourceMetadata
    status: Any = None


async def read_crd(client: Client, name: str) -> CrdContent | None:
    """Return a CRD, None if the cluster does not have it."""
    try:
        return await client.get(_DEFINITIONS, name, into=CrdContent)
    except NotFound:
        return None


async def read_kind(client: Client, crd: CrdContent) -> KindFacts:
    """Return the resources of a CRD that are not current, and the number of all."""
    version = crd.stored
    has_status = "status" in (version.subresources or {})
    total = reported = 0
    writes: list[str] = []
    pending: list[PendingResource] = []
    async for page in client.pages(crd.kind(version), into=_Resource, limit=_PAGE):
        for each in page.items:
            total += 1
            reported += bool(each.status)
            writes.append(_written(each))
            state = _state(each, has_status)
            if state is not None:
                pending.append(state)
        if total >= _MOST_RESOURCES:
            break
    return KindFacts(crd.spec.names.kind, total, reported, tuple(pending), last_writes(writes))


def _written(resource: _Resource) -> str:
    """Return the time of the last write of a status, as the API server has it; empty if there was none."""
    return max(
        (each.time for each in resource.metadata.managed_fields if each.subresource == "status"), default=""
    )


def _state(resource: _Resource, has_status: bool) -> PendingResource | None:
    """Return a resource that is not current."""
    metadata = resource.metadata
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    if not resource.status:
        if not has_status and not metadata.deletion_timestamp:
            return None
        return PendingResource(metadata.uid, name, ResourceState.UNTOUCHED)
    health = _health(resource)
    if health.state == "Current":
        return None
    state = ResourceState.FAILED if health.state == "Failed" else ResourceState.IN_PROGRESS
    if _lags(resource):
        state = ResourceState.LAGGING
    return PendingResource(metadata.uid, name, state, health.message[:200])


def _lags(resource: _Resource) -> bool:
    observed = resource.status.get("observedGeneration") if isinstance(resource.status, Mapping) else None
    return isinstance(observed, int) and observed < resource.metadata.generation


def _health(resource: _Resource) -> ObjectHealth:
    manifest = {
        "metadata": {
            "generation": resource.metadata.generation,
            "deletionTimestamp": resource.metadata.deletion_timestamp,
        },
        "status": resource.status,
    }
    try:
        return object_health(manifest)
    except (AttributeError, TypeError, ValueError):
        return ObjectHealth("Current")  # a status of another shape says nothing about health

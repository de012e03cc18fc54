"""Discovery of the resources that a cluster serves, including CRDs that are installed later."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import DecodeError, NotFound, UnknownKind
from kapsa.runtime.resources.api_resource import ApiResource, group_version_path
from kapsa.runtime.resources.metadata import GroupVersionKind

__all__ = ["BUILT_IN_GROUPS", "Discovery", "missing_kind"]

T = TypeVar("T")
Fetch = Callable[[str, str], Awaitable[bytes]]
"""Reads a path of the API server, with an Accept header."""

_JSON = "application/json"
_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()
    singular: str = msgspec.field(name="singularName", default="")
    short_names: tuple[str, ...] | None = msgspec.field(name="shortNames", default=None)


class _ResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_Named, ...] = ()


class _Version(msgspec.Struct, frozen=True):
    group_version: str = msgspec.field(name="groupVersion")


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _ResponseKind(msgspec.Struct, frozen=True):
    kind: str = ""


class _Subresource(msgspec.Struct, frozen=True):
    subresource: str


class _AggregatedResource(msgspec.Struct, frozen=True):
    resource: str
    scope: str = ""
    response: _ResponseKind | None = msgspec.field(name="responseKind", default=None)
    verbs: tuple[str, ...] = ()
    singular: str = msgspec.field(name="singularResource", default="")
    short_names: tuple[str, ...] | None = msgspec.field(name="shortNames", default=None)
    subresources: tuple[_Subresource, ...] | None = None


class _AggregatedVersion(msgspec.Struct, frozen=True):
    version: str
    resources: tuple[_AggregatedResource, ...] | None = None


class _AggregatedGroup(msgspec.Struct, frozen=True):
    metadata: dict[str, Any]
    versions: tuple[_AggregatedVersion, ...] = ()


class _Root(msgspec.Struct, frozen=True):
    """`/api` and `/apis` in any of their three formats."""

    kind: str = ""
    versions: tuple[str, ...] = ()
    groups: tuple[_Group, ...] = ()
    items: tuple[_AggregatedGroup, ...] = ()


BUILT_IN_GROUPS = frozenset(
    (
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "extensions",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    )
)
"""The groups of Kubernetes itself. No CustomResourceDefinition can add a kind to them."""


def missing_kind(gvk: GroupVersionKind, served: Sequence[str]) -> str:
    """Return the message for a kind that the cluster does not serve; `served` are those of its group version."""
    from difflib import get_close_matches  # only for a mistake: most operators never need it

    similar = get_close_matches(gvk.kind, served, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    if gvk.group not in BUILT_IN_GROUPS:
        return f"the cluster does not serve {gvk}: install its CustomResourceDefinition{hint}"
    return (
        f"the cluster does not serve {gvk}, a kind of Kubernetes itself: check its spelling and version{hint}"
    )


class Discovery:
    """The resources of kinds. Each group version is requested once, and again when a kind is missing.

    A missing kind is requested at most every `refresh_after` seconds, so that an operator that waits for a
    CRD neither floods the server nor needs a restart.
    """

    def __init__(self, fetch: Fetch, *, clock: Clock, refresh_after: float = 2.0) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refresh_after = refresh_after
        self._served: dict[GroupVersionKind, ApiResource] = {}
        self._requested_at: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def resource(self, gvk: GroupVersionKind) -> ApiResource:
        """Return the resource behind a kind. Raises `UnknownKind` if the cluster does not serve it."""
        resource = self._served.get(gvk)
        if resource is not None:
            return resource
        async with self._locks.setdefault(gvk.api_version, asyncio.Lock()):
            resource = self._served.get(gvk)
            if resource is None and self._may_request(gvk.api_version):
                await self._load(gvk.api_version)
                resource = self._served.get(gvk)
        if resource is None:
            raise UnknownKind(missing_kind(gvk, self.kinds(gvk.api_version)))
        return resource

    def kinds(self, api_version: str) -> list[str]:
        """Return the kinds of a group version, as far as they have been requested."""
        return sorted({gvk.kind for gvk in self._served if gvk.api_version == api_version})

    async def resources(self) -> list[ApiResource]:
        """Request and return all resources of all versions, preferred versions first."""
        core, groups = await asyncio.gather(
            self._fetch("/api", _AGGREGATED), self._fetch("/apis", _AGGREGATED)
        )
        resources: list[ApiResource] = []
        for body in (core, groups):
            root = _read(body, _Root, "/api and /apis")
            if root.kind == "APIGroupDiscoveryList":
                resources += _from_aggregated(root.items)
            else:
                versions = [*root.versions, *(v.group_version for g in root.groups for v in g.versions)]
                for listed in await asyncio.gather(*(self._list(version) for version in versions)):
                    resources += listed
        self._remember(resources)
        return resources

    def forget(self) -> None:
        """Forget all resources, so that they are requested again."""
        self._served.clear()
        self._requested_at.clear()

    def _may_request(self, api_version: str) -> bool:
        requested_at = self._requested_at.get(api_version)
        return requested_at is None or self._clock.monotonic() - requested_at >= self._refresh_after

    async def _load(self, api_version: str) -> None:
        # If the group version does not exist, the caller reports the missing kind.
        with contextlib.suppress(NotFound):
            self._remember(await self._list(api_version))
        self._requested_at[api_version] = self._clock.monotonic()

    async def _list(self, api_version: str) -> list[ApiResource]:
        body = await self._fetch(group_version_path(api_version), _JSON)
        return _from_list(api_version, _read(body, _ResourceList, group_version_path(api_version)))

    def _remember(self, resources: list[ApiResource]) -> None:
        for resource in resources:
            self._served[resource.gvk] = resource


def _read(body: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"{path}: cannot decode the discovery document: {error}") from error


def _from_list(api_version: str, listed: _ResourceList) -> list[ApiResource]:
    group, _, version = api_version.rpartition("/")
    subresources: dict[str, list[str]] = {}
    for entry in listed.resources:
        parent, slash, subresource = entry.name.partition("/")
        if slash:
            subresources.setdefault(parent, []).append(subresource)
    return [
        ApiResource(
            group=group,
            version=version,
            kind=entry.kind,
            plural=entry.name,
            namespaced=entry.namespaced,
            verbs=entry.verbs,
            subresources=tuple(subresources.get(entry.name, ())),
            singular=entry.singular,
            short_names=entry.short_names or (),
        )
        for entry in listed.resources
        if "/" not in entry.name
    ]


def _from_aggregated(groups: tuple[_AggregatedGroup, ...]) -> list[ApiResource]:
    return [
        ApiResource(
            group=group.metadata.get("name", ""),
            version=version.version,
            kind=entry.response.kind if entry.response else "",
            plural=entry.resource,
            namespaced=entry.scope == "Namespaced",
            verbs=entry.verbs,
            subresources=tuple(s.subresource for s in entry.subresources or ()),
            singular=entry.singular,
            short_names=entry.short_names or (),
        )
        for group in groups
        for version in group.versions
        for entry in version.resources or ()
    ]

"""What a cluster serves: maps a kind to the resource behind it, and notices CRDs that appear later."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import DecodeError, NotFound, UnknownKind
from kapsa.runtime.resources.api_resource import ApiResource, group_version_path
from kapsa.runtime.resources.metadata import GroupVersionKind

__all__ = ["Discovery"]

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
    """`/api` and `/apis` in any of their three shapes."""

    kind: str = ""
    versions: tuple[str, ...] = ()
    groups: tuple[_Group, ...] = ()
    items: tuple[_AggregatedGroup, ...] = ()


class Discovery:
    """Maps kinds to resources, asking the cluster once per group version and again when a kind is missing.

    A missing kind is asked for at most every `refresh_after` seconds, so that an operator waiting for a CRD
    neither floods the server nor needs a restart.
    """

    def __init__(self, fetch: Fetch, *, clock: Clock, refresh_after: float = 2.0) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refresh_after = refresh_after
        self._known: dict[GroupVersionKind, ApiResource] = {}
        self._asked: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def resource(self, gvk: GroupVersionKind) -> ApiResource:
        """The resource behind a kind; `UnknownKind` while the cluster does not serve it."""
        found = self._known.get(gvk)
        if found is not None:
            return found
        async with self._locks.setdefault(gvk.api_version, asyncio.Lock()):
            found = self._known.get(gvk)
            if found is None and self._may_ask(gvk.api_version):
                await self._load(gvk.api_version)
                found = self._known.get(gvk)
        if found is None:
            raise UnknownKind(
                f"the cluster serves no {gvk.kind} in {gvk.api_version}: "
                "is its CustomResourceDefinition installed?"
            )
        return found

    async def resources(self) -> list[ApiResource]:
        """Everything the cluster serves, every version, preferred versions first; always asked anew."""
        core, groups = await asyncio.gather(
            self._fetch("/api", _AGGREGATED), self._fetch("/apis", _AGGREGATED)
        )
        found: list[ApiResource] = []
        for body in (core, groups):
            root = _read(body, _Root, "/api and /apis")
            if root.kind == "APIGroupDiscoveryList":
                found += _from_aggregated(root.items)
            else:
                versions = [*root.versions, *(v.group_version for g in root.groups for v in g.versions)]
                for listed in await asyncio.gather(*(self._list(version) for version in versions)):
                    found += listed
        self._remember(found)
        return found

    def forget(self) -> None:
        """Ask again for everything."""
        self._known.clear()
        self._asked.clear()

    def _may_ask(self, api_version: str) -> bool:
        asked = self._asked.get(api_version)
        return asked is None or self._clock.monotonic() - asked >= self._refresh_after

    async def _load(self, api_version: str) -> None:
        # No such group version: the caller says so, in words about the kind.
        with contextlib.suppress(NotFound):
            self._remember(await self._list(api_version))
        self._asked[api_version] = self._clock.monotonic()

    async def _list(self, api_version: str) -> list[ApiResource]:
        body = await self._fetch(group_version_path(api_version), _JSON)
        return _from_list(api_version, _read(body, _ResourceList, group_version_path(api_version)))

    def _remember(self, resources: list[ApiResource]) -> None:
        for resource in resources:
            self._known[resource.gvk] = resource


def _read(body: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"{where}: not a discovery document: {error}") from error


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

"""The registry of served resources: the built-in ones, and custom ones while they have a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Protocol

import msgspec

from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.schemas.schema import Schema

__all__ = ["ResourceInfo", "ResourceRegistry", "Subresource", "VersionConverter"]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """A path below an object, such as `status` or `scale`."""

    name: str
    kind: str = ""
    """Kind of the body; empty if it is the parent's."""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = ("get", "patch", "update")


class VersionConverter(Protocol):
    """Conversion between a served version of a custom resource and the stored one."""

    async def prepare(self, objects: Iterable[Stored]) -> None:
        """Convert objects in advance, so that `read` needs no webhook."""

    def read(self, stored: Stored) -> dict[str, Any]:
        """Return a copy of a stored object in the served version."""

    async def to_storage(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Convert an object of the served version to the stored one."""

    async def convert(self, obj: dict[str, Any], target: ResourceInfo) -> dict[str, Any]:
        """Convert an object of any version of the resource to another version."""


class ResourceInfo(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One resource in one version."""

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    storage_version: str = ""
    storage_group: str | None = None
    """Group of the collection, if two groups share it: events of the core group and of events.k8s.io."""
    is_custom: bool = False
    list_kind: str = ""
    definition: dict[str, Any] | None = None
    """The CustomResourceDefinition of a custom resource, as stored."""
    converter: VersionConverter | None = None
    """Set if this version differs from the stored one in more than its name."""
    deprecation: str = ""
    """Warning for each client of this version."""
    load_schema: Callable[[], Schema] | None = None
    """Loads the schema; called once, on first use."""

    @cached_property
    def schema(self) -> Schema | None:
        """Schema of the kind, if it has one."""
        return None if self.load_schema is None else self.load_schema()

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """The apiVersion that objects are stored in."""
        group = self.group if self.storage_group is None else self.storage_group
        version = self.storage_version or self.version
        return f"{group}/{version}" if group else version

    @cached_property
    def stored_as(self) -> ResourceInfo:
        """The resource in the group of its collection, which validation errors name."""
        group = self.storage_group
        return self if group is None else msgspec.structs.replace(self, group=group, storage_group=None)

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of that name, or None."""
        for subresource in self.subresources:
            if subresource.name == name:
                return subresource
        return None

    @property
    def has_status(self) -> bool:
        """True if the status is a subresource."""
        return self.subresource("status") is not None

    def object_key(self, namespace: str, name: str) -> str:
        """Return the key of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name


class ResourceRegistry:
    """Resources by group, version and plural name, and by kind."""

    def __init__(self, resources: Iterable[ResourceInfo] = ()) -> None:
        self._by_resource: dict[tuple[str, str, str], ResourceInfo] = {}
        self._by_kind: dict[tuple[str, str, str], ResourceInfo] = {}
        self._group_versions: dict[str, list[str]] = {}
        self.generation = 0
        """Incremented with each change, for caches of what is derived from the registry."""
        for resource in resources:
            self.add(resource)

    def add(self, info: ResourceInfo) -> None:
        """Add a resource, or replace its description."""
        self._by_resource[info.group, info.version, info.resource] = info
        self._by_kind[info.group, info.version, info.kind] = info
        versions = self._group_versions.setdefault(info.group, [])
        if info.version not in versions:
            versions.append(info.version)
        self.generation += 1

    def remove(self, group: str, version: str, resource: str) -> None:
        """Remove a resource, and its group-version with its last resource."""
        info = self._by_resource.pop((group, version, resource), None)
        if info is None:
            return
        if self._by_kind.get((group, version, info.kind)) is info:
            del self._by_kind[group, version, info.kind]
        if not any(key[:2] == (group, version) for key in self._by_resource):
            self._group_versions[group].remove(version)
            if not self._group_versions[group]:
                del self._group_versions[group]
        self.generation += 1

    def find(self, group: str, version: str, resource: str) -> ResourceInfo | None:
        """Return a resource by its plural name, or None."""
        return self._by_resource.get((group, version, resource))

    def find_kind(self, group: str, version: str, kind: str) -> ResourceInfo | None:
        """Return a resource by its kind, or None."""
        return self._by_kind.get((group, version, kind))

    def get(self, group: str, version: str, resource: str) -> ResourceInfo:
        """Return a resource. Raises LookupError when it is not served."""
        info = self._by_resource.get((group, version, resource))
        if info is None:
            raise LookupError(f"resource {resource} is not served in group {group!r} version {version!r}")
        return info

    def versions_of(self, group: str, resource: str) -> list[ResourceInfo]:
        """Return a resource in each version it is served in."""
        return [
            self._by_resource[group, version, resource]
            for version in self._group_versions.get(group, ())
            if (group, version, resource) in self._by_resource
        ]

    def has_group_version(self, group: str, version: str) -> bool:
        """Return whether a group-version is served."""
        return version in self._group_versions.get(group, ())

    def groups(self) -> dict[str, list[str]]:
        """Return the groups with their versions, in the order they were added."""
        return {group: list(versions) for group, versions in self._group_versions.items()}

    def is_builtin(self, group: str) -> bool:
        """Return whether a group has built-in resources: the real server has a route for it."""
        return any(info.group == group and not info.is_custom for info in self._by_resource.values())

    def in_group_version(self, group: str, version: str) -> list[ResourceInfo]:
        """Return the resources of a group-version."""
        return [info for key, info in self._by_resource.items() if key[:2] == (group, version)]

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(list(self._by_resource.values()))

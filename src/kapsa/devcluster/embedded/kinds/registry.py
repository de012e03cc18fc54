"""Which resources are served: the built-in kinds, and custom ones as their definitions come and go."""

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
    """A path below an object, such as ``status`` or ``scale``."""

    name: str
    kind: str = ""
    """Kind of the body; empty when it is the parent's."""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = ("get", "patch", "update")


class VersionConverter(Protocol):
    """Between a served version of a custom resource and the stored one."""

    async def prepare(self, objects: Iterable[Stored]) -> None:
        """Make sure that these objects can be read."""

    def read(self, stored: Stored) -> dict[str, Any]:
        """A stored object in the served version, as a copy of its own."""

    async def to_storage(self, obj: dict[str, Any]) -> dict[str, Any]:
        """An object of the served version in the stored one."""

    async def convert(self, obj: dict[str, Any], target: ResourceInfo) -> dict[str, Any]:
        """An object of any version of the resource in another one."""


class ResourceInfo(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """All that the server knows of one resource in one version."""

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
    """Set where two groups share one store, as events of the core group and of events.k8s.io do."""
    is_custom: bool = False
    list_kind: str = ""
    definition: dict[str, Any] | None = None
    """The CustomResourceDefinition of a custom resource, as stored."""
    converter: VersionConverter | None = None
    """Set where more than the name differs between this version and the stored one."""
    deprecation: str = ""
    """What every client of this version is warned of."""
    load_schema: Callable[[], Schema] | None = None
    """Where the schema comes from; called once, when it is first needed."""

    @cached_property
    def schema(self) -> Schema | None:
        return None if self.load_schema is None else self.load_schema()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        group = self.group if self.storage_group is None else self.storage_group
        version = self.storage_version or self.version
        return f"{group}/{version}" if group else version

    @cached_property
    def stored_as(self) -> ResourceInfo:
        """The same in the group that it is stored in, which errors of validation name."""
        group = self.storage_group
        return self if group is None else msgspec.structs.replace(self, group=group, storage_group=None)

    def subresource(self, name: str) -> Subresource | None:
        for found in self.subresources:
            if found.name == name:
                return found
        return None

    @property
    def has_status(self) -> bool:
        return self.subresource("status") is not None

    def object_key(self, namespace: str, name: str) -> str:
        """The key of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name


class ResourceRegistry:
    """Resources by group, version and plural name, and by kind."""

    def __init__(self, resources: Iterable[ResourceInfo] = ()) -> None:
        self._by_resource: dict[tuple[str, str, str], ResourceInfo] = {}
        self._by_kind: dict[tuple[str, str, str], ResourceInfo] = {}
        self._group_versions: dict[str, list[str]] = {}
        self.generation = 0
        """Rises with every change, so that what is derived from the registry can be cached."""
        for resource in resources:
            self.add(resource)

    def add(self, info: ResourceInfo) -> None:
        """Serve a resource, or serve it as described now."""
        self._by_resource[info.group, info.version, info.resource] = info
        self._by_kind[info.group, info.version, info.kind] = info
        versions = self._group_versions.setdefault(info.group, [])
        if info.version not in versions:
            versions.append(info.version)
        self.generation += 1

    def remove(self, group: str, version: str, resource: str) -> None:
        """Stop serving a resource; its group-version goes with its last one."""
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
        return self._by_resource.get((group, version, resource))

    def find_kind(self, group: str, version: str, kind: str) -> ResourceInfo | None:
        return self._by_kind.get((group, version, kind))

    def get(self, group: str, version: str, resource: str) -> ResourceInfo:
        """A resource that must be there.

        :raises LookupError: when it is not served.
        """
        found = self._by_resource.get((group, version, resource))
        if found is None:
            raise LookupError(f"no resource {resource} is served in group {group!r} version {version!r}")
        return found

    def versions_of(self, group: str, resource: str) -> list[ResourceInfo]:
        """One resource in every version it is served in."""
        return [
            self._by_resource[group, version, resource]
            for version in self._group_versions.get(group, ())
            if (group, version, resource) in self._by_resource
        ]

    def has_group_version(self, group: str, version: str) -> bool:
        return version in self._group_versions.get(group, ())

    def groups(self) -> dict[str, list[str]]:
        """Groups with their versions, in the order they were added."""
        return {group: list(versions) for group, versions in self._group_versions.items()}

    def is_builtin(self, group: str) -> bool:
        """Whether the group is served from the start; of other groups the real server's router knows nothing."""
        return any(info.group == group and not info.is_custom for info in self._by_resource.values())

    def in_group_version(self, group: str, version: str) -> list[ResourceInfo]:
        return [info for key, info in self._by_resource.items() if key[:2] == (group, version)]

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(list(self._by_resource.values()))

"""The parts that all Kubernetes objects share: kind, metadata and owner references."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["GroupVersionKind", "ObjectMeta", "OwnerReference"]


class GroupVersionKind(msgspec.Struct, frozen=True, order=True, gc=False):
    """The full name of a kind, such as `apps/v1/Deployment`."""

    group: str
    """The API group; empty for the core group (`v1/Service`)."""
    version: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> GroupVersionKind:
        """Parse `group/version/Kind`, or `version/Kind` for the core group."""
        parts = text.split("/")
        if len(parts) == 2:
            parts.insert(0, "")
        elif len(parts) != 3 or not parts[0]:
            parts = []
        if not parts or not parts[1] or not parts[2][:1].isupper():
            raise ValueError(
                f"{text!r} does not name a kind; write group/version/Kind such as 'apps/v1/Deployment',"
                " or version/Kind for the core group such as 'v1/Service'"
            )
        return cls(*parts)

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> GroupVersionKind:
        """Return the kind of an object given as a dict."""
        api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
        if not isinstance(api_version, str) or not isinstance(kind, str) or not api_version or not kind:
            raise ValueError(f"an object must have apiVersion and kind, got {api_version!r} and {kind!r}")
        return cls.from_api_version(api_version, kind)

    @classmethod
    def from_api_version(cls, api_version: str, kind: str) -> GroupVersionKind:
        """Return the kind of the two fields that objects and references carry."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of an object of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """An owner of an object. The object is deleted when its last owner is."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    """True for the one owner that manages the object."""
    block_owner_deletion: bool = False
    """True if a foreground deletion of the owner waits for this object."""

    @property
    def group(self) -> str:
        """The owner's API group, which identifies the owner's kind in all its versions."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Standard object metadata, without the managed fields.

    Collections are typed read-only, because all readers share the metadata of a cached object.
    """

    name: str = ""
    generate_name: str = ""
    """The server appends a random suffix when `name` is empty."""
    namespace: str = ""
    """Empty for cluster-scoped objects."""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """The number of changes of the spec."""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    """Set when the object is being deleted and waits for its finalizers."""
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if it has one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def deleting(self) -> bool:
        """True if deletion has been requested."""
        return self.deletion_timestamp is not None

    def __str__(self) -> str:
        name = self.name or f"{self.generate_name}*"
        return f"{self.namespace}/{name}" if self.namespace else name

"""Objects as the cache stores them: their JSON without managedFields, and the few fields that lookups need.

They are decoded on read, into a frozen struct or a dict, so ten thousand objects cost little more than their
JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import OwnerReference
from kapsa.runtime.resources.mismatch import mismatch
from kapsa.runtime.resources.resource import CustomResource

__all__ = [
    "Change",
    "Key",
    "StoredObject",
    "read_as",
    "version_number",
]

T = TypeVar("T")


class Key(NamedTuple):
    """The namespace (empty for cluster-scoped kinds) and the name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object of the cache: typed metadata for lookups, and the whole object as JSON."""

    key: Key
    uid: str
    resource_version: str
    raw: bytes
    """The whole object as JSON, without managedFields."""
    generation: int = 0
    labels: dict[str, str] = {}
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None
    owned_fields: bytes = b""
    """The fieldsV1 of the manager that the store follows (see `ObjectParser`)."""

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def version(self) -> int:
        """The resourceVersion as a number, for comparisons."""
        return version_number(self.resource_version)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    def annotations(self) -> dict[str, str]:
        """Return the annotations, decoded from the JSON because they are too large to store twice."""
        return _ANNOTATED.decode(self.raw).metadata.annotations or {}

    def fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes whenever anything but the status changes."""
        return (
            self.uid,
            self.generation,
            self.deletion_timestamp,
            tuple(sorted(self.labels.items())),
            tuple(sorted(self.annotations().items())),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole object as a new dict, which the caller may change."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded

    def decode(self, into: type[T]) -> T:
        """Return the object as this type. Raises msgspec.ValidationError if it does not fit."""
        return msgspec.json.decode(self.raw, type=into)


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of one object: added (no old), updated, or deleted (no new)."""

    old: StoredObject | None
    new: StoredObject | None
    initial: bool = False
    """True if it comes from a list, a relist or a resync rather than from the watch."""

    @property
    def object(self) -> StoredObject:
        """The newest state."""
        newest = self.new or self.old
        assert newest is not None
        return newest

    @property
    def event(self) -> str:
        if self.new is None:
            return "Deleted"
        return "Added" if self.old is None else "Updated"


def read_as(stored: StoredObject, kind: Kind) -> Any:
    """Return a stored object as the type of a kind: a dict, a resource or a struct.

    Raises `ModelMismatch` if it does not fit. A resource checks its spec and status when they are first used.
    """
    if isinstance(kind, str):
        return stored.to_dict()
    if issubclass(kind, CustomResource):
        return kind.decode(stored.raw)
    try:
        return stored.decode(kind)
    except msgspec.ValidationError as error:
        raise mismatch(f"{kind_of(kind).kind} {stored.key}", "", error) from None


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number; -1 if it is not one.

    Kubernetes guarantees since 1.35 that the resource versions of one kind compare as integers.
    """
    try:
        return int(resource_version)
    except ValueError:
        return -1


class _AnnotatedMetadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct):
    metadata: _AnnotatedMetadata


_ANNOTATED = msgspec.json.Decoder(_Annotated)

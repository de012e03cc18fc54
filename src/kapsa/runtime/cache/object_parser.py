"""The parser of objects for the cache: from the JSON of lists and watches to `StoredObject`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from kapsa.runtime.resources.metadata import OwnerReference
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["ObjectParser", "Transform", "key_and_version", "owned_fields"]

_log = structlog.get_logger(__name__)

Transform = Callable[[dict[str, Any]], dict[str, Any]]
"""Reduces an object before it is stored to the fields that are read.

If it fails, the whole object is stored.
"""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = 0
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None
    deletion_timestamp: str | None = None


class _ManagedEntry(msgspec.Struct, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


class _IdentifyingMetadata(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct, gc=False):
    metadata: _IdentifyingMetadata


_IDENTIFIED = msgspec.json.Decoder(_Identified)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA = msgspec.json.Decoder(_Metadata)
_MANAGED = msgspec.json.Decoder(list[_ManagedEntry])
_ENCODER = msgspec.json.Encoder()

# Objects of one kind share namespaces, the kinds of their owners and the fields that their operator owns:
# each is stored once. The limit only matters for a kind whose objects share nothing.
_INTERNED = 4096


def key_and_version(raw: bytes) -> tuple[Key, str]:
    """Return the key and the resourceVersion of an object in JSON."""
    metadata = _IDENTIFIED.decode(raw).metadata
    return Key(metadata.namespace, metadata.name), metadata.resource_version


def owned_fields(raw: bytes, manager: str) -> bytes:
    """Return the fieldsV1 that a manager owns by server-side apply; empty if none."""
    managed = _FIELDS.decode(_FIELDS.decode(raw)["metadata"]).get("managedFields")
    return b"" if managed is None else _fields_of(managed, manager)


def _fields_of(managed: msgspec.Raw, manager: str) -> bytes:
    for entry in _MANAGED.decode(managed):
        if entry.manager == manager and entry.operation == "Apply" and not entry.subresource:
            return bytes(entry.fields_v1)
    return b""


def _apply(transform: Transform, text: bytes) -> bytes:
    result = _ENCODER.encode(transform(msgspec.json.decode(text)))
    if not result.startswith(b"{"):
        raise TypeError(f"the transform must return an object, got {result[:20].decode('utf-8', 'replace')}")
    return result


class ObjectParser:
    """A parser from the JSON of one kind's objects to `StoredObject`s.

    The items of a list of built-in kinds have no apiVersion and kind, and PartialObjectMetadata has those of
    another kind; the parser sets the right ones. It removes managedFields, and stores the fields that
    `follow_manager` owns by server-side apply: they show without a request whether what an operator applied
    is unchanged.
    """

    def __init__(
        self,
        api_version: str,
        kind: str,
        *,
        follow_manager: str = "",
        transform: Transform | None = None,
        metadata_only: bool = False,
    ) -> None:
        self._api_version = msgspec.Raw(_ENCODER.encode(api_version))
        self._kind = msgspec.Raw(_ENCODER.encode(kind))
        self._follow_manager = follow_manager
        self._transform = transform
        self._metadata_only = metadata_only
        self._failures_logged: set[type[Exception]] = set()
        self._shapes: dict[bytes, bytes] = {}
        self._strings: dict[str, str] = {}

    def __call__(self, raw: bytes | msgspec.Raw) -> StoredObject:
        fields = _FIELDS.decode(raw)
        wire_metadata = fields["metadata"]
        metadata = _METADATA.decode(wire_metadata)
        inner = _FIELDS.decode(wire_metadata)
        managed = inner.pop("managedFields", None)
        owned = b""
        if managed is not None:
            fields["metadata"] = msgspec.Raw(_ENCODER.encode(inner))
            if self._follow_manager:
                owned = self._owned_fields(managed)
        if self._metadata_only:  # the response to a write contains more than the watch requests
            fields = {"metadata": fields["metadata"]}
        if "kind" not in fields:
            fields = {"apiVersion": self._api_version, "kind": self._kind, **fields}
        text = _ENCODER.encode(fields)
        if self._transform is not None:
            text = self._transformed(text, self._transform, metadata)
        return StoredObject(
            key=Key(self._interned(metadata.namespace), metadata.name),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            raw=bytes(memoryview(text)),  # the encoder's buffer is up to a third larger than its content
            generation=metadata.generation or 0,
            labels=metadata.labels or _NO_LABELS,
            owners=self._owners(metadata.owner_references) if metadata.owner_references else (),
            finalizers=metadata.finalizers or (),
            deletion_timestamp=metadata.deletion_timestamp,
            owned_fields=owned,
        )

    def _transformed(self, text: bytes, transform: Transform, metadata: _Metadata) -> bytes:
        """Return the transformed object, or the whole one if the transform fails.

        An object that is left out would never be reconciled, and a relist would report it as deleted.
        """
        try:
            return _apply(transform, text)
        except Exception as error:
            if type(error) not in self._failures_logged:
                self._failures_logged.add(type(error))
                _log.exception(
                    "transform failed; the whole object is stored",
                    kind=msgspec.json.decode(self._kind),
                    object=str(Key(metadata.namespace, metadata.name)),
                    error=str(error),
                )
            return text

    def _owned_fields(self, managed: msgspec.Raw) -> bytes:
        shape = _fields_of(managed, self._follow_manager)
        if len(self._shapes) >= _INTERNED:
            self._shapes.clear()
        return self._shapes.setdefault(shape, shape)

    def _owners(self, owners: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
        return tuple(
            OwnerReference(
                api_version=self._interned(each.api_version),
                kind=self._interned(each.kind),
                name=each.name,
                uid=each.uid,
                controller=each.controller,
                block_owner_deletion=each.block_owner_deletion,
            )
            for each in owners
        )

    def _interned(self, text: str) -> str:
        if len(self._strings) >= _INTERNED:
            self._strings.clear()
        return self._strings.setdefault(text, text)


_NO_LABELS: dict[str, str] = {}

"""How a kind is addressed, encoded and decoded: what the client works out once per kind, then reuses.

A kind is given as a string (`"apps/v1/Deployment"`, read as dicts), as a `CustomResource` class, or as any class
that msgspec can decode and that says which kind it is.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from kapsa.runtime.client.discovery import ApiResource
from kapsa.runtime.errors import DecodeError
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.mismatch import mismatch
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.stored_object import StoredObject

__all__ = ["Binding", "Manifest", "decoder_for", "kind_of", "read_as", "resource_of"]

T = TypeVar("T")
Manifest: TypeAlias = dict[str, Any]
"""An object as plain JSON types."""

Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Any]

_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class ListMeta(msgspec.Struct, frozen=True):
    """The metadata of a list."""

    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class ResourceList(msgspec.Struct, Generic[T], frozen=True):
    """Objects of one kind as of one resourceVersion: a whole list, or a page of it."""

    items: Sequence[T] = ()
    resource_version: str = ""
    continue_token: str = ""
    """Where the next page starts; empty on the last."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class _RawList(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class _ManifestList(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Manifest] | None = None


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


_decode_raw_list = msgspec.json.Decoder(_RawList).decode
_decode_manifest_list = msgspec.json.Decoder(_ManifestList).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
_encode = msgspec.json.Encoder().encode


class Binding:
    """One resource of the API and the Python type its objects are read into."""

    __slots__ = ("_cluster", "_decode", "_namespaced", "_type", "resource")

    def __init__(self, resource: ApiResource, type: type[Any]) -> None:  # noqa: A002 - a type is what it is
        self.resource = resource
        self._type = type
        self._decode = decoder_for(type)
        self._cluster = f"{resource.path}/{resource.plural}"
        self._namespaced = f"{resource.path}/namespaces/"

    def into(self, type: type[Any]) -> "Binding":  # noqa: A002
        """The same resource, read into another type."""
        return Binding(self.resource, type)

    def collection_path(self, namespace: str) -> str:
        """The path of all objects: of one namespace, or of the cluster when `namespace` is empty."""
        if namespace and self.resource.namespaced:
            return f"{self._namespaced}{segment(namespace, 'namespace')}/{self.resource.plural}"
        return self._cluster

    def object_path(self, name: str, namespace: str, subresource: str = "") -> str:
        """The path of one object, or of a subresource of it."""
        if self.resource.namespaced and not namespace:
            raise ValueError(f"{self.resource.kind} {name!r} is namespaced: say in which namespace it is")
        path = f"{self.collection_path(namespace)}/{segment(name, 'name')}"
        return f"{path}/{subresource}" if subresource else path

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """One object."""
        try:
            return self._decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(data, error) from error

    def decode_list(self, data: bytes) -> ResourceList[Any]:
        """One page of objects. The server leaves apiVersion and kind out of a list's items: dicts get them back."""
        try:
            page = _decode_manifest_list(data) if self._type is dict else _decode_raw_list(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"the list of {self.resource.plural} can't be read: {error}") from error
        if isinstance(page, _ManifestList):
            identity = {"apiVersion": self.resource.gvk.api_version, "kind": self.resource.kind}
            items: list[Any] = [item if "kind" in item else {**identity, **item} for item in page.items or ()]
            return _page(items, page.metadata)
        return _page([self.decode(item) for item in page.items or ()], page.metadata)

    def _misfit(self, data: bytes | msgspec.Raw, error: Exception) -> DecodeError:
        try:
            found = msgspec.json.decode(data, type=_Object).metadata
            name = f"{found.namespace}/{found.name}" if found.namespace else found.name
        except (msgspec.DecodeError, RecursionError):
            name = "(unreadable)"
        return DecodeError(f"{self.resource.kind} {name} does not fit {self._type.__qualname__}: {error}")


def _page(items: list[Any], metadata: ListMeta) -> ResourceList[Any]:
    return ResourceList(items, metadata.resource_version, metadata.continue_token)


def decoder_for(kind: type[Any]) -> Decode:
    """What reads JSON into a type."""
    if issubclass(kind, CustomResource):
        return kind.decode
    if kind is dict:
        return _decode_manifest
    if kind is bytes:
        return bytes
    return msgspec.json.Decoder(kind).decode


def read_as(stored: StoredObject, kind: str | type[Any]) -> Any:
    """An object of the cache as the kind was asked for: a dict, a resource or a struct.

    :raises ModelMismatch: it does not fit. A resource tells that of its spec and status when they are first used.
    """
    if isinstance(kind, str):
        return stored.to_dict()
    if issubclass(kind, CustomResource):
        return kind.decode(stored.raw)
    try:
        return stored.decode(kind)
    except msgspec.ValidationError as error:
        raise mismatch(f"{kind_of(kind).kind} {stored.key}", "", error) from None


def encode(body: Any) -> bytes:
    """An object, or a patch, as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, CustomResource):
        body = body.to_dict()
    return _encode(body)


def segment(value: str, what: str) -> str:
    """A name as one segment of a path. An empty name would turn a delete into a delete of everything."""
    if _PLAIN_SEGMENT.fullmatch(value):
        return value
    if not value or value in (".", "..") or "/" in value or "%" in value:
        raise ValueError(f"{value!r} can't be the {what} of an object")
    return quote(value, safe=":")


def kind_of(kind: str | type[Any]) -> GroupVersionKind:
    """The group, version and kind behind what callers pass as a kind."""
    if isinstance(kind, str):
        return GroupVersionKind.parse(kind)
    if issubclass(kind, CustomResource):
        if "definition" not in dir(kind):
            raise TypeError(f"{kind.__qualname__} has no group and version, so it is no kind of its own")
        return kind.gvk
    info = getattr(kind, "_api_info", None)  # lightkube's resource classes
    if info is not None:
        return GroupVersionKind(*info.resource)
    fields = {f.encode_name: f.default for f in msgspec.structs.fields(kind)} if _is_struct(kind) else {}
    api_version, name = fields.get("apiVersion"), fields.get("kind")
    if isinstance(api_version, str) and isinstance(name, str):
        return GroupVersionKind.from_api_version(api_version, name)
    raise TypeError(
        f"{kind.__qualname__} does not say which kind it is: give it apiVersion and kind fields with defaults, "
        f"or pass the kind as a string and into={kind.__qualname__}"
    )


def resource_of(kind: str | type[Any]) -> ApiResource | None:
    """The resource of a kind whose class knows it; None when the cluster has to be asked."""
    if isinstance(kind, type) and issubclass(kind, CustomResource):
        definition = kind.definition
        return ApiResource(
            group=definition.group,
            version=definition.version,
            kind=definition.kind,
            plural=definition.plural,
            namespaced=definition.namespaced,
        )
    return None


class Identity(msgspec.Struct, frozen=True):
    """Which object a body is about."""

    kind: str | type[Any]
    """As the client's verbs take it."""
    type: type[Any]
    """What the answer is read into: the type that was passed in."""
    name: str
    namespace: str


def identity_of(body: Any) -> Identity:
    """Which object a dict, a `CustomResource` or a struct is."""
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        kind = str(GroupVersionKind.of(body))
        return Identity(kind, dict, metadata.get("name") or "", metadata.get("namespace") or "")
    cls = type(body)
    metadata = getattr(body, "metadata", None)
    name = getattr(metadata, "name", None) or ""
    namespace = getattr(metadata, "namespace", None) or ""
    if isinstance(body, CustomResource):
        return Identity(cls, cls, name, namespace)
    # The models of lightkube set these two on the instance, not on the class.
    api_version = getattr(body, "apiVersion", None) or getattr(body, "api_version", None)
    kind_name = getattr(body, "kind", None)
    if isinstance(api_version, str) and isinstance(kind_name, str):
        return Identity(f"{api_version}/{kind_name}", cls, name, namespace)
    return Identity(cls, cls, name, namespace)


def _is_struct(kind: type[Any]) -> bool:
    return issubclass(kind, msgspec.Struct)

"""The codec between one kind's objects in Python and their JSON."""

from typing import Any

import msgspec

from kapsa.runtime.errors import DecodeError
from kapsa.runtime.resources.api_resource import ApiResource
from kapsa.runtime.resources.kind import Manifest, decoder_for
from kapsa.runtime.resources.model import encode_json
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.resource_list import ResourceList

__all__ = ["Codec", "encode"]


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _RawList(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _ManifestList(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[Manifest] | None = None


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


_decode_raw_list = msgspec.json.Decoder(_RawList).decode
_decode_manifest_list = msgspec.json.Decoder(_ManifestList).decode


class Codec:
    """A codec that reads the objects of one resource into one Python type."""

    __slots__ = ("_decode", "_type", "resource")

    def __init__(self, resource: ApiResource, type: type[Any]) -> None:  # noqa: A002 - the natural name
        self.resource = resource
        self._type = type
        self._decode = decoder_for(type)

    def into(self, type: type[Any]) -> "Codec":  # noqa: A002
        """Return a codec of the same resource that reads into another type."""
        return Codec(self.resource, type)

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """Return one object. Raises `DecodeError` if it does not fit the type."""
        try:
            return self._decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(data, error) from error

    def decode_list(self, data: bytes) -> ResourceList[Any]:
        """Return one page of objects.

        The API server omits apiVersion and kind from the items of a list; items read as dicts get them back.
        """
        try:
            page = _decode_manifest_list(data) if self._type is dict else _decode_raw_list(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"cannot decode the list of {self.resource.plural}: {error}") from error
        if isinstance(page, _ManifestList):
            identity = {"apiVersion": self.resource.gvk.api_version, "kind": self.resource.kind}
            items: list[Any] = [item if "kind" in item else {**identity, **item} for item in page.items or ()]
        else:
            items = [self.decode(item) for item in page.items or ()]
        return ResourceList(items, page.metadata.resource_version, page.metadata.continue_token)

    def _misfit(self, data: bytes | msgspec.Raw, error: Exception) -> DecodeError:
        try:
            metadata = msgspec.json.decode(data, type=_Object).metadata
            name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        except (msgspec.DecodeError, RecursionError):
            name = "(unreadable)"
        return DecodeError(f"{self.resource.kind} {name} does not fit {self._type.__qualname__}: {error}")


def encode(body: Any) -> bytes:
    """Return an object, or a patch, as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, CustomResource):
        body = body.to_dict()
    return encode_json(body)

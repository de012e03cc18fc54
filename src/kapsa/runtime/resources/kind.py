"""Kinds as callers name them, and the Python types that their objects are read into.

A kind is a string (`"apps/v1/Deployment"`, read into dicts), a `CustomResource` class, or any class that
msgspec can decode and that declares its kind in fields of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["Decode", "Kind", "Manifest", "decoder_for", "kind_of"]

Kind: TypeAlias = str | type[Any]
"""`"apps/v1/Deployment"`, `"v1/Service"`, a `CustomResource` class, or a struct that declares its kind."""

Manifest: TypeAlias = dict[str, Any]
"""An object as plain JSON types."""

Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Any]
"""Reads the JSON of one object."""

_decode_manifest = msgspec.json.Decoder(Manifest).decode


def kind_of(kind: Kind) -> GroupVersionKind:
    """Return the group, version and kind that a caller means."""
    if isinstance(kind, str):
        return GroupVersionKind.parse(kind)
    if issubclass(kind, CustomResource):
        if "definition" not in dir(kind):
            raise TypeError(
                f"{kind.__qualname__} has no group and version, so it does not name a kind; pass a subclass "
                "that declares both"
            )
        return kind.gvk
    info = getattr(kind, "_api_info", None)  # lightkube's resource classes
    if info is not None:
        return GroupVersionKind(*info.resource)
    fields = {f.encode_name: f.default for f in msgspec.structs.fields(kind)} if _is_struct(kind) else {}
    api_version, name = fields.get("apiVersion"), fields.get("kind")
    if isinstance(api_version, str) and isinstance(name, str):
        return GroupVersionKind.from_api_version(api_version, name)
    raise TypeError(
        f"{kind.__qualname__} does not name a kind: give it apiVersion and kind fields with defaults, "
        f"or pass the kind as a string and into={kind.__qualname__}"
    )


def decoder_for(type: type[Any]) -> Decode:  # noqa: A002 - the natural name
    """Return the function that reads JSON into a type."""
    if issubclass(type, CustomResource):
        return type.decode
    if type is dict:
        return _decode_manifest
    if type is bytes:
        return bytes
    return msgspec.json.Decoder(type).decode


def _is_struct(kind: type[Any]) -> bool:
    return issubclass(kind, msgspec.Struct)

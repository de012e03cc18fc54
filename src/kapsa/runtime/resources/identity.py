"""The identity of an object: its kind, name and namespace, in whatever form the object is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["Identity", "identity_of"]


class Identity(msgspec.Struct, frozen=True):
    """The object that a body describes."""

    kind: Kind
    """The kind, as the client's methods take it."""
    type: type[Any]
    """The type of the body, which the server's response is read into."""
    name: str
    namespace: str


def identity_of(body: Any) -> Identity:
    """Return the identity of a dict, a `CustomResource` or a struct."""
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
    # lightkube's models set these two on the instance, not on the class.
    api_version = getattr(body, "apiVersion", None) or getattr(body, "api_version", None)
    kind_name = getattr(body, "kind", None)
    if isinstance(api_version, str) and isinstance(kind_name, str):
        return Identity(f"{api_version}/{kind_name}", cls, name, namespace)
    return Identity(cls, cls, name, namespace)

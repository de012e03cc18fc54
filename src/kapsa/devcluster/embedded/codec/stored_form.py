"""Encoding of objects for the store, and decoding of stored ones."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec.canonical import canonical
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Stored

__all__ = ["decode", "stored_form", "with_revision"]

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_LABELS: dict[str, str] = {}


def decode(stored: Stored) -> Object:
    """Return a new copy of a stored object, which the caller may change."""
    obj: Object = _decode(stored.body)
    return obj


def stored_form(info: ResourceInfo, obj: Object, revision: int) -> Stored:
    """Encode an object for the store. Its resourceVersion must be the given revision."""
    obj = canonical(info, obj)
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    return Stored(
        info.object_key(namespace, name),
        namespace,
        name,
        meta["uid"],
        revision,
        meta.get("labels") or _NO_LABELS,
        _encode(obj),
    )


def with_revision(stored: Stored, revision: int) -> Stored:
    """Return the same object at another revision."""
    # The first resourceVersion of an encoded object is its own: see canonical.
    body = stored.body.replace(
        b'"resourceVersion":"%d"' % stored.revision, b'"resourceVersion":"%d"' % revision, 1
    )
    return Stored(stored.key, stored.namespace, stored.name, stored.uid, revision, stored.labels, body)

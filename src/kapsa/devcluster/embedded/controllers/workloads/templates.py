"""Pod templates: their hash, their comparison, and the pods made from them."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference

HASH_LABEL = "pod-template-hash"

# Kubernetes' alphabet for generated names: no vowels, so no words by accident, and no look-alikes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_encoder = msgspec.json.Encoder(order="deterministic")


def safe_hash(value: Any, collisions: int | None = None) -> str:
    """A short name-safe hash of any JSON value; a collision count gives another one."""
    data = _encoder.encode(value)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    digits = str(zlib.crc32(data))
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digits)


def without_hash(template: Object) -> Object:
    labels = (template.get("metadata") or {}).get("labels") or {}
    if HASH_LABEL not in labels:
        return template
    rest = {key: value for key, value in labels.items() if key != HASH_LABEL}
    metadata = {**template["metadata"], "labels": rest}
    if not rest:
        del metadata["labels"]
    return {**template, "metadata": metadata}


def same_template(one: Object, other: Object) -> bool:
    """Equal but for the hash label and for fields that mean the same when they are empty."""
    return _plain(without_hash(one)) == _plain(without_hash(other))


def _plain(template: Object) -> Object:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v not in (None, {}, [])}
    return {**template, "metadata": metadata}


def pod_from(template: Object, kind: Kind, owner: Object, *, finalizers: tuple[str, ...] = ()) -> Object:
    """A pod of this template under this owner, its name left to the server."""
    source = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "generateName": owner["metadata"]["name"] + "-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [controller_reference(kind, owner)],
    }
    for field in ("labels", "annotations"):
        if source.get(field):
            metadata[field] = dict(source[field])
    wanted = [*(source.get("finalizers") or ()), *finalizers]
    if wanted:
        metadata["finalizers"] = wanted
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy.deepcopy(template.get("spec") or {}),
    }

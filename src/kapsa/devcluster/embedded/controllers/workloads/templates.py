"""Pod templates: hashes, comparison, and the pods created from them."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference

HASH_LABEL = "pod-template-hash"

# Kubernetes' alphabet for generated names: without vowels, to avoid words, and without look-alikes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_encoder = msgspec.json.Encoder(order="deterministic")


def safe_hash(value: Any, collisions: int | None = None) -> str:
    """Return a short hash of a JSON value, valid in names. Another collision count gives another hash."""
    data = _encoder.encode(value)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    digits = str(zlib.crc32(data))
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digits)


def without_hash(template: Object) -> Object:
    """Return the template without its hash label."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    if HASH_LABEL not in labels:
        return template
    rest = {key: value for key, value in labels.items() if key != HASH_LABEL}
    metadata = {**template["metadata"], "labels": rest}
    if not rest:
        del metadata["labels"]
    return {**template, "metadata": metadata}


def same_template(one: Object, other: Object) -> bool:
    """Return whether templates are equal, ignoring the hash label and empty fields of metadata."""
    return _plain(without_hash(one)) == _plain(without_hash(other))


def _plain(template: Object) -> Object:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v not in (None, {}, [])}
    return {**template, "metadata": metadata}


def pod_from(template: Object, kind: Kind, owner: Object, *, finalizers: tuple[str, ...] = ()) -> Object:
    """Return a pod from a template, controlled by the owner. The server generates its name."""
    source = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "generateName": owner["metadata"]["name"] + "-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [controller_reference(kind, owner)],
    }
    for field in ("labels", "annotations"):
        if source.get(field):
            metadata[field] = dict(source[field])
    combined = [*(source.get("finalizers") or ()), *finalizers]
    if combined:
        metadata["finalizers"] = combined
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy.deepcopy(template.get("spec") or {}),
    }

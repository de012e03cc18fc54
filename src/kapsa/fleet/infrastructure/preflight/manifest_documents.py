"""The documents of a rendered manifest: parsed for a trial, and written again only where an object has changed.

What is approved is bytes, so a document that keeps its fields keeps its bytes, comments included.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.errors import LimitExceeded
from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS
from kapsa.adapters.manifests.yaml_documents import load_objects

__all__ = ["ManifestObject", "object_name", "read_objects", "replace_objects"]

_SEPARATOR = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_COMMENTS = re.compile(rb"\A(?:\s*#[^\n]*\n)+")
# JSON allows these in a string as they are; YAML does not, or reads a line break.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class ManifestObject(msgspec.Struct, frozen=True):
    """One object of a manifest."""

    document: int
    """The number of the document that it is in. A list has several objects in one document."""
    content: dict[str, Any]


def read_objects(manifest: bytes, what: str = "the manifest") -> list[ManifestObject]:
    """Return the objects of a manifest, in their order.

    Raises the errors of `load_objects`.
    """
    if len(manifest) > MANIFEST_LIMITS.bytes:
        raise LimitExceeded(f"{what} is larger than {MANIFEST_LIMITS.bytes // 1024} KB")
    documents = _SEPARATOR.split(manifest)
    if len(documents) > MANIFEST_LIMITS.documents:
        raise LimitExceeded(f"{what} has more than {MANIFEST_LIMITS.documents} documents")
    return [
        ManifestObject(number, content)
        for number, document in enumerate(documents)
        for content in load_objects(document, what, MANIFEST_LIMITS)
    ]


def replace_objects(
    manifest: bytes, before: Sequence[ManifestObject], after: Sequence[Mapping[str, Any]]
) -> bytes:
    """Return the manifest with each object as in `after`. A document whose objects are unchanged keeps its bytes."""
    documents = _SEPARATOR.split(manifest)
    pairs = list(zip(before, after, strict=True))
    changed = {each.document for each, content in pairs if each.content != content}
    for number in changed:
        contents = [content for each, content in pairs if each.document == number]
        header = _COMMENTS.match(documents[number])
        comments = header.group().lstrip() if header else b""
        documents[number] = b"---".join(b"\n" + comments + _encode(each) for each in contents)
    return b"---".join(documents)


def object_name(content: Mapping[str, Any], namespace: str = "") -> str:
    """Return `Kind namespace/name`, or `Kind name` for an object without a namespace."""
    metadata = content["metadata"]
    where = str(metadata.get("namespace") or namespace)
    name = str(metadata.get("name", ""))
    return f"{content['kind']} {where}/{name}" if where else f"{content['kind']} {name}"


def _encode(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, which every reader of YAML reads alike: no text looks like a number or a date."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", text).encode() + b"\n"

"""The approved manifest, and the part of it that Helm applies: everything but CRDs.

Helm deletes a CRD, with every custom resource, once a chart no longer has it. So Helm is never given one: CRDs are
applied by `ClusterOperations.apply_crds`, from the same approved bytes.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kapsa.adapters.helm.release_secret import MANIFEST_LIMITS
from kapsa.adapters.manifests.yaml_documents import load_objects

__all__ = ["crds_in", "services_in", "without_crds"]

# Three dashes at the start of a line begin a document: content of a scalar is indented.
_SEPARATOR = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_KIND = b"CustomResourceDefinition"


def without_crds(manifest: bytes) -> bytes:
    """Return a manifest without its CRDs, every other document byte for byte."""
    if _KIND not in manifest:
        return manifest
    return b"".join(_remainder(text, objects) for text, objects in _documents(manifest))


def crds_in(manifest: bytes) -> list[dict[str, Any]]:
    """Return the CRDs of a manifest."""
    if _KIND not in manifest:
        return []
    return [each for _, objects in _documents(manifest) for each in objects if _is_crd(each)]


def services_in(manifest: bytes) -> list[dict[str, Any]]:
    """Return the Services of a manifest."""
    return [
        each for each in load_objects(manifest, "the manifest", MANIFEST_LIMITS) if each["kind"] == "Service"
    ]


def _remainder(text: bytes, objects: list[dict[str, Any]]) -> bytes:
    """Return a document without its CRDs: as it is, or nothing, or the other items of a list as documents."""
    if not any(map(_is_crd, objects)):
        return text
    others = [each for each in objects if not _is_crd(each)]
    return b"".join(b"---\n" + msgspec.json.encode(each) + b"\n" for each in others)


def _documents(manifest: bytes) -> Iterator[tuple[bytes, list[dict[str, Any]]]]:
    """Yield each document with its separator, and its objects if it may contain a CRD."""
    starts = [match.start() for match in _SEPARATOR.finditer(manifest)]
    bounds = sorted({0, *starts, len(manifest)})
    for start, end in itertools.pairwise(bounds):
        text = manifest[start:end]
        yield text, load_objects(text, "the manifest", MANIFEST_LIMITS) if _KIND in text else []


def _is_crd(manifest: dict[str, Any]) -> bool:
    group = str(manifest["apiVersion"]).partition("/")[0]
    return manifest["kind"] == _KIND.decode() and group == "apiextensions.k8s.io"

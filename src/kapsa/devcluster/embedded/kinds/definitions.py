"""The definitions of the built-in kinds: a data file that tools/openapi generates from a real server."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kapsa.schemas.schema import Schema

__all__ = [
    "BuiltinGroup",
    "BuiltinResource",
    "Definitions",
    "Version",
    "column_descriptions",
    "definitions",
    "load",
]

DATA_FILE = Path(__file__).parents[1] / "data" / "kubernetes-1.36.json.gz"

_FREE_FORM = frozenset(
    {
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
    }
)
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_ZERO_VALUES: tuple[Any, ...] = (None, "", 0, {}, [])
_EXTENSIONS = {
    "format": "format",
    "x-kubernetes-list-type": "list_type",
    "x-kubernetes-map-type": "map_type",
    "x-kubernetes-patch-strategy": "patch_strategy",
    "x-kubernetes-patch-merge-key": "patch_merge_key",
}


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """The reply to `/version` of the server that the data was generated from."""

    major: str
    minor: str
    git_version: str
    git_commit: str
    build_date: str


class BuiltinResource(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of the server's discovery: a resource, or a subresource named `parent/sub`."""

    name: str
    kind: str
    namespaced: bool = False
    singular_name: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    group: str = ""
    version: str = ""


class BuiltinGroup(msgspec.Struct, frozen=True):
    """A group-version with its resources."""

    name: str
    version: str
    resources: tuple[BuiltinResource, ...]


class _Data(msgspec.Struct, frozen=True):
    version: Version
    groups: tuple[BuiltinGroup, ...]
    definitions: dict[str, msgspec.Raw]
    columns: msgspec.Raw


@cache
def column_descriptions() -> dict[str, list[str]]:
    """Return the descriptions of each resource's table columns, by `group/resource`."""
    return msgspec.json.decode(load().columns, type=dict[str, list[str]])


@cache
def load() -> _Data:
    """Return the data file, decoded once per process. Definitions stay bytes until they are used."""
    packed = DATA_FILE.read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=_Data)


class Definitions:
    """OpenAPI definitions by name, as documents and as schema nodes."""

    def __init__(self, raw: Mapping[str, msgspec.Raw]) -> None:
        self._raw = raw
        self._documents: dict[str, dict[str, Any]] = {}
        self._schemas: dict[str, Schema] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def names(self) -> list[str]:
        """Return the names of all definitions."""
        return list(self._raw)

    def document(self, name: str) -> dict[str, Any]:
        """Return an OpenAPI definition, in which `$ref` is a bare name."""
        document = self._documents.get(name)
        if document is None:
            self._documents[name] = document = msgspec.json.decode(self._raw[name])
        return document

    def schema(self, name: str) -> Schema:
        """Return a definition as a schema node. A recursive one refers to itself."""
        schema = self._schemas.get(name)
        return self._define(name) if schema is None else schema

    def _define(self, name: str) -> Schema:
        raw = self.document(name)
        if name == _INT_OR_STRING:
            schema = Schema(int_or_string=True, name=name)
        elif name == _QUANTITY:
            schema = Schema(format="quantity", name=name)
        elif name in _FREE_FORM or not raw.get("type"):
            schema = Schema(type=raw.get("type", ""), preserve_unknown=True, name=name)
        else:
            children: dict[str, Schema] = {}
            schema = Schema(**_facets(raw), properties=children, name=name)
            self._schemas[name] = schema
            for key, child in raw.get("properties", {}).items():
                children[key] = self._node(child)
        self._schemas[name] = schema
        return schema

    def _node(self, raw: dict[str, Any]) -> Schema:
        reference = raw.get("$ref")
        facets = _facets(raw)
        if reference is not None:
            target = self.schema(reference)
            return msgspec.structs.replace(target, **facets) if facets else target
        if len(facets) == 1 and (leaf := _LEAVES.get(facets.get("type", ""))) is not None:
            return leaf
        if "items" in raw:
            facets["items"] = self._node(raw["items"])
        if isinstance(raw.get("additionalProperties"), dict):
            facets["additional"] = self._node(raw["additionalProperties"])
        elif facets.get("type") == "object":
            facets["preserve_unknown"] = True
        return Schema(**facets)


_LEAVES = {kind: Schema(type=kind) for kind in ("string", "boolean", "integer", "number")}


def _facets(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema attributes of a built-in field. A zero default is Go's form of none."""
    facets: dict[str, Any] = {name: raw[key] for key, name in _EXTENSIONS.items() if key in raw}
    if "type" in raw:
        facets["type"] = raw["type"]
    if raw.get("default") not in _ZERO_VALUES:
        facets["default"] = raw["default"]
    if "x-kubernetes-list-map-keys" in raw:
        facets["map_keys"] = tuple(raw["x-kubernetes-list-map-keys"])
    return facets


@cache
def definitions() -> Definitions:
    """Return the definitions of the data file, which all servers of the process share."""
    return Definitions(load().definitions)

"""OpenAPI documents: version 3 with an index and a document per group-version, version 2 as one document.

A document's hash in the index is that of its inputs (the data files, the definitions of custom resources), so
the index is cheap and a document is built only when a client requests it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import msgspec

from kapsa.devcluster.embedded.documents.descriptions import (
    describe,
    field_descriptions,
    source_version,
)
from kapsa.devcluster.embedded.documents.openapi_paths import path_items, reference
from kapsa.devcluster.embedded.documents.openapi_protobuf import ACCEPTED, MEDIA_TYPE, encode_v2
from kapsa.devcluster.embedded.documents.openapi_v2 import to_v2
from kapsa.devcluster.embedded.kinds.builtins import definition_name
from kapsa.devcluster.embedded.kinds.definitions import DATA_FILE, Definitions, definitions, load
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["OpenApi", "custom_definition_name"]

Document = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_KIND = "x-kubernetes-group-version-kind"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"


def custom_definition_name(group: str, version: str, kind: str) -> str:
    """Return the name of a custom kind's definition, with its group reversed, as in com.example.v1.Widget."""
    return ".".join([*reversed(group.split(".")), version, kind])


@cache
def _data_digest() -> bytes:
    return hashlib.sha512(DATA_FILE.read_bytes() + source_version().encode()).digest()


class OpenApi:
    """The documents at `/openapi/v3`, below it, and at `/openapi/v2`."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._generation = -1
        self._bodies: dict[str, bytes] = {}

    def answer(self, request: Request) -> Reply | None:
        """Return the reply to a request for a document, None for any other path."""
        path = request.path.rstrip("/")
        if not path.startswith("/openapi/") or request.method not in ("GET", "HEAD"):
            return None
        if self._generation != self._registry.generation:
            self._bodies.clear()
            self._generation = self._registry.generation
        if path == "/openapi/v2":
            return self._version_2(request)
        if path == "/openapi/v3":
            return self._index()
        if not path.startswith("/openapi/v3/"):
            return None
        return self._version_3(request, path.removeprefix("/openapi/v3/"))

    def _group_versions(self) -> dict[str, tuple[str, str]]:
        """Return the group and version of each document by its path."""
        by_path = {}
        for group, versions in self._registry.groups().items():
            for version in versions:
                by_path[f"apis/{group}/{version}" if group else f"api/{version}"] = group, version
        return dict(sorted(by_path.items()))

    def _hash(self, group: str, version: str) -> str:
        digest = hashlib.sha512(_data_digest())
        digest.update(f"{group}/{version}".encode())
        for info in self._registry.in_group_version(group, version):
            if info.definition is not None:
                digest.update(msgspec.json.encode(info.definition["spec"], order="deterministic"))
        return digest.hexdigest().upper()

    def _index(self) -> Reply:
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(group, version)}"}
            for path, (group, version) in self._group_versions().items()
        }
        headers = {"content-type": "application/json", "cache-control": "no-cache, private"}
        return Reply(status=200, headers=headers, body=msgspec.json.encode({"paths": paths}))

    def _version_3(self, request: Request, path: str) -> Reply:
        group_version = self._group_versions().get(path)
        if group_version is None:
            return Reply(status=404, headers={"cache-control": "no-cache, private"})
        _check_accept(request, "v3")
        current = self._hash(*group_version)
        headers = {"content-type": "application/json", "vary": "Accept", "etag": f'"{current}"'}
        requested = parse_qs(request.query).get("hash", [""])[0]
        if requested and requested != current:
            location = f"/openapi/v3/{path}?hash={current}"
            return Reply(
                status=301, headers={**headers, "cache-control": "no-cache, private", "location": location}
            )
        headers["cache-control"] = "public, immutable" if requested else "no-cache, private"
        if request.headers.get("if-none-match") == headers["etag"]:
            return Reply(status=304, headers=headers)
        body = self._bodies.get(path)
        if body is None:
            body = self._bodies[path] = msgspec.json.encode(self.document(*group_version))
        return Reply(status=200, headers=headers, body=body)

    def _version_2(self, request: Request) -> Reply:
        accept = request.headers.get("accept", "")
        media = MEDIA_TYPE if any(name in accept for name in ACCEPTED) else "application/json"
        if media != MEDIA_TYPE:
            _check_accept(request, "v2")
        body = self._bodies.get(media)
        if body is None:
            documents = [self.document(group, version) for group, version in self._group_versions().values()]
            encode = encode_v2 if media == MEDIA_TYPE else msgspec.json.encode
            body = self._bodies[media] = encode(to_v2(documents, _info()))
        headers = {"content-type": media, "cache-control": "no-cache, private", "vary": "Accept"}
        return Reply(status=200, headers=headers, body=body)

    def document(self, group: str, version: str) -> Document:
        """Return the OpenAPI v3 document of a group-version."""
        resources = self._registry.in_group_version(group, version)
        paths: Document = {}
        schemas = _Schemas(definitions())
        for info in resources:
            name = schemas.add_kind(info)
            listed = schemas.add_list(info)
            for path, item in path_items(info, name, listed, _SCALE):
                paths[path] = item
        schemas.follow(_references(paths))
        custom = any(info.is_custom for info in resources)
        title = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"} if custom else _info()
        components = {"schemas": dict(sorted(schemas.by_name.items()))}
        return {
            "openapi": "3.0.0",
            "info": title,
            "paths": dict(sorted(paths.items())),
            "components": components,
        }


def _info() -> Document:
    version = load().version
    return {"title": "Kubernetes", "version": f"v{version.major}.{version.minor}"}


def _check_accept(request: Request, version: str) -> None:
    accept = request.headers.get("accept", "")
    if accept and not any(media in accept for media in ("*/*", "application/*", "application/json")):
        text = f"OpenAPI {version} documents are served as JSON only; send Accept: application/json"
        raise StatusError(406, "NotAcceptable", text)


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        reference_ = value.get("$ref")
        if isinstance(reference_, str):
            yield reference_.rpartition("/")[2]
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


class _Schemas:
    """The component schemas of one document, with all definitions that they refer to."""

    def __init__(self, builtin: Definitions) -> None:
        self._builtin = builtin
        self.by_name: Document = {}

    def add_kind(self, info: ResourceInfo) -> str:
        if not info.is_custom:
            name = definition_name(info.group, info.version, info.kind)
            self.follow([name])
            return name
        name = custom_definition_name(info.group, info.version, info.kind)
        self.by_name[name] = _custom_schema(info)
        self.follow([f"{_META}.ObjectMeta"])
        return name

    def add_list(self, info: ResourceInfo) -> str:
        if not info.is_custom:
            name = definition_name(info.group, info.version, info.list_kind)
            if name in self._builtin:
                self.follow([name])
            return name
        name = custom_definition_name(info.group, info.version, info.list_kind)
        kind = custom_definition_name(info.group, info.version, info.kind)
        self.by_name[name] = {
            "description": f"{info.list_kind} is a list of {info.kind}",
            "type": "object",
            "required": ["items"],
            "properties": {
                **_type_properties("io.k8s.api.core.v1.PodList", f"{_META}.ListMeta"),
                "items": {
                    "description": f"List of {info.resource}. More info: {_CONVENTIONS}",
                    "type": "array",
                    "items": reference(kind),
                },
            },
            _KIND: [{"group": info.group, "kind": info.list_kind, "version": info.version}],
        }
        self.follow([f"{_META}.ListMeta"])
        return name

    def follow(self, names: Iterable[str]) -> None:
        """Add the named definitions and all definitions that they refer to."""
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in self.by_name or name not in self._builtin:
                continue
            self.by_name[name] = schema = _expand(describe(name, self._builtin.document(name)))
            pending.extend(_references(schema))


def _expand(schema: Document) -> Document:
    """Return a stored definition in OpenAPI's form: a reference with other keys goes into an allOf."""
    expanded = {key: value for key, value in schema.items() if key != "$ref"}
    if "$ref" in schema:
        if not expanded:
            return reference(schema["$ref"])
        expanded["allOf"] = [reference(schema["$ref"])]
    if "properties" in expanded:
        expanded["properties"] = {name: _expand(child) for name, child in expanded["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(expanded.get(key), dict):
            expanded[key] = _expand(expanded[key])
    return expanded


def _type_properties(like: str, metadata: str) -> Document:
    """Return the properties that each kind has, with the descriptions of a built-in one."""
    texts = field_descriptions(like)
    properties: Document = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [reference(metadata)]},
    }
    return {
        name: {"description": texts[name], **schema} if name in texts else schema
        for name, schema in properties.items()
    }


def _custom_schema(info: ResourceInfo) -> Document:
    """Return the schema of a custom resource from its definition, with type and object metadata."""
    schema: Document = {}
    for version in (info.definition or {}).get("spec", {}).get("versions", ()):
        if version["name"] == info.version:
            schema = dict((version.get("schema") or {}).get("openAPIV3Schema") or {})
    properties = dict(schema.get("properties") or {})
    properties |= _type_properties("io.k8s.api.core.v1.Pod", f"{_META}.ObjectMeta")
    schema["type"] = "object"
    if not schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("properties"):
        schema["properties"] = properties
    schema[_KIND] = [{"group": info.group, "kind": info.kind, "version": info.version}]
    return schema

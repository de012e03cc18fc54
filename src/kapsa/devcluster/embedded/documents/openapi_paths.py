"""The operations of a resource, as OpenAPI path items.

Clients read more than types from these: kubectl looks up a resource's kind by its path, and reads from
the parameters of PATCH whether the server supports field validation and dry runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, Subresource

__all__ = ["path_items", "reference"]

Item = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PREFIX = "#/components/schemas/"
_LIST = {
    "allowWatchBookmarks": "boolean",
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
_WRITE = {"dryRun": "string", "fieldManager": "string", "fieldValidation": "string"}
_DELETE = {
    "dryRun": "string",
    "gracePeriodSeconds": "integer",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
    "orphanDependents": "boolean",
    "propagationPolicy": "string",
}
_COLLECTION_DELETE = {
    **_DELETE,
    **{key: _LIST[key] for key in _LIST if key not in ("allowWatchBookmarks", "watch")},
}
_STREAM = "application/json;stream=watch"
_JSON, _YAML = "application/json", "application/yaml"
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"


def reference(definition: str) -> Item:
    return {"$ref": _PREFIX + definition}


def path_items(
    info: ResourceInfo, definition: str, list_definition: str, scale: str
) -> Iterator[tuple[str, Item]]:
    """Yield the paths of a resource with their items.

    `definition` is that of its kind, `scale` that of the scale subresource.
    """
    builder = _Builder(info, definition, list_definition)
    root = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    scope = "/namespaces/{namespace}" if info.namespaced else ""
    collection = f"{root}{scope}/{info.resource}"
    if info.namespaced and "list" in info.verbs:
        yield f"{root}/{info.resource}", builder.everywhere()
    yield collection, builder.collection()
    if "get" in info.verbs:
        yield f"{collection}/{{name}}", builder.object()
    for sub in info.subresources:
        if sub.kind in ("", "Scale"):
            yield f"{collection}/{{name}}/{sub.name}", builder.subresource(sub, scale)


class _Builder:
    """The path items of one resource."""

    def __init__(self, info: ResourceInfo, definition: str, list_definition: str) -> None:
        self.info = info
        self.definition = definition
        self.list_definition = list_definition
        parts = (info.group.removesuffix(".k8s.io") or "core").split(".")
        words = [word[:1].upper() + word[1:] for word in parts]
        self.tag = f"{words[0].lower()}{''.join(words[1:])}_{info.version}"
        self.prefix = "".join(words) + info.version[:1].upper() + info.version[1:]
        self.scope = "Namespaced" if info.namespaced else ""

    def everywhere(self) -> Item:
        operation = self._operation(
            "list", f"list{self.prefix}{self.info.kind}ForAllNamespaces", "list or watch objects of kind"
        )
        operation["responses"] = self._responses(self.list_definition, "200", stream=True)
        return {"get": operation, "parameters": [*_parameters(_LIST), _parameter("pretty", "string")]}

    def collection(self) -> Item:
        verbs, item = self.info.verbs, {}
        if "list" in verbs:
            get = self._operation("list", f"list{self._name()}", "list or watch objects of kind")
            get["parameters"] = _parameters(_LIST)
            get["responses"] = self._responses(self.list_definition, "200", stream=True)
            item["get"] = get
        if "create" in verbs:
            post = self._write("post", f"create{self._name()}", self._one("create"), self.definition)
            post["responses"] = self._responses(self.definition, "200", "201", "202")
            item["post"] = post
        if "deletecollection" in verbs:
            name = f"delete{self.prefix}Collection{self.scope}{self.info.kind}"
            delete = self._operation("deletecollection", name, "delete collection of")
            delete["parameters"] = _parameters(_COLLECTION_DELETE)
            delete["requestBody"] = self._body(f"{_META}.DeleteOptions", required=False)
            delete["responses"] = self._responses(f"{_META}.Status", "200")
            item["delete"] = delete
        return {**item, "parameters": self._own_parameters(named=False)}

    def object(self) -> Item:
        item: Item = {}
        get = self._operation("get", f"read{self._name()}", "read the specified")
        get["responses"] = self._responses(self.definition, "200")
        item["get"] = get
        verbs = self.info.verbs
        if "update" in verbs:
            item["put"] = self._replace(self._name(), "replace the specified", self.definition)
        if "delete" in verbs:
            delete = self._operation("delete", f"delete{self._name()}", self._one("delete"))
            delete["parameters"] = _parameters(_DELETE)
            delete["requestBody"] = self._body(f"{_META}.DeleteOptions", required=False)
            delete["responses"] = self._responses(f"{_META}.Status", "200", "202")
            item["delete"] = delete
        if "patch" in verbs:
            item["patch"] = self._patch(self._name(), "partially update the specified", self.definition)
        return {**item, "parameters": self._own_parameters(named=True)}

    def subresource(self, sub: Subresource, scale: str) -> Item:
        definition = scale if sub.kind == "Scale" else self.definition
        name = f"{self._name()}{sub.name[:1].upper()}{sub.name[1:]}"
        item: Item = {}
        if "get" in sub.verbs:
            get = self._operation("get", f"read{name}", f"read {sub.name} of the specified", sub)
            get["responses"] = self._responses(definition, "200")
            item["get"] = get
        if "update" in sub.verbs:
            item["put"] = self._replace(name, f"replace {sub.name} of the specified", definition, sub)
        if "patch" in sub.verbs:
            item["patch"] = self._patch(
                name, f"partially update {sub.name} of the specified", definition, sub
            )
        return {**item, "parameters": self._own_parameters(named=True)}

    def _one(self, verb: str) -> str:
        return f"{verb} {'an' if self.info.kind[0] in 'AEIOU' else 'a'}"

    def _name(self) -> str:
        return f"{self.prefix}{self.scope}{self.info.kind}"

    def _operation(self, action: str, name: str, text: str, sub: Subresource | None = None) -> Item:
        kind = {"group": self.info.group, "version": self.info.version, "kind": self.info.kind}
        if sub is not None and sub.kind:
            kind = {"group": sub.group, "version": sub.version, "kind": sub.kind}
        return {
            "tags": [self.tag],
            "description": f"{text} {self.info.kind}",
            "operationId": name,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }

    def _write(
        self, action: str, name: str, text: str, definition: str, sub: Subresource | None = None
    ) -> Item:
        operation = self._operation(action, name, text, sub)
        operation["parameters"] = _parameters(_WRITE)
        operation["requestBody"] = self._body(definition, required=True)
        return operation

    def _replace(self, name: str, text: str, definition: str, sub: Subresource | None = None) -> Item:
        operation = self._write("put", f"replace{name}", text, definition, sub)
        operation["responses"] = self._responses(definition, "200", "201")
        return operation

    def _patch(self, name: str, text: str, definition: str, sub: Subresource | None = None) -> Item:
        operation = self._operation("patch", f"patch{name}", text, sub)
        operation["parameters"] = [*_parameters(_WRITE), _parameter("force", "boolean")]
        medias = _PATCHES if self.info.is_custom else (*_PATCHES, _STRATEGIC)
        content = {media: {"schema": reference(f"{_META}.Patch")} for media in medias}
        operation["requestBody"] = {"content": content, "required": True}
        operation["responses"] = self._responses(definition, "200", "201")
        return operation

    def _body(self, definition: str, *, required: bool) -> Item:
        medias = (_JSON, _YAML) if self.info.is_custom else ("*/*",)
        body: Item = {"content": {media: {"schema": reference(definition)} for media in medias}}
        return {**body, "required": True} if required else body

    def _responses(self, definition: str, *codes: str, stream: bool = False) -> Item:
        medias = (_JSON, _STREAM, _YAML) if stream else (_JSON, _YAML)
        content = {media: {"schema": reference(definition)} for media in medias}
        texts = {"200": "OK", "201": "Created", "202": "Accepted"}
        responses = {code: {"description": texts[code], "content": content} for code in codes}
        return {**responses, "401": {"description": "Unauthorized"}}

    def _own_parameters(self, *, named: bool) -> list[Item]:
        parameters = [_parameter("name", "string", location="path")] if named else []
        if self.info.namespaced:
            parameters.append(_parameter("namespace", "string", location="path"))
        return [*parameters, _parameter("pretty", "string")]


def _parameter(name: str, type_: str, location: str = "query") -> Item:
    parameter: Item = {"name": name, "in": location, "schema": {"type": type_, "uniqueItems": True}}
    return {**parameter, "required": True} if location == "path" else parameter


def _parameters(types: dict[str, str]) -> list[Item]:
    return [_parameter(name, types[name]) for name in sorted(types)]

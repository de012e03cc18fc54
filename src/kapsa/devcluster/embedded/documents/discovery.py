"""Discovery: the groups, versions and resources of the server, in one document or in many.

Clients request `/apis` and each group-version below it, or, with an Accept header, all of it at once
(aggregated discovery). The documents are derived from the registry, so custom resources appear as they are
served.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry, Subresource
from kapsa.devcluster.embedded.kinds.versions import version_priority
from kapsa.devcluster.embedded.replies.negotiation import Form
from kapsa.devcluster.embedded.replies.writer import encode_document
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["DiscoveryDocuments"]

Document = dict[str, Any]
_AGGREGATED = re.compile(
    r"application/json;g=apidiscovery\.k8s\.io;v=(v2(?:beta1)?);as=APIGroupDiscoveryList"
)


class DiscoveryDocuments:
    """The documents at `/api`, `/apis`, `/apis/GROUP` and `/apis/GROUP/VERSION`."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._generation = -1
        self._documents: dict[str, Document] = {}
        self._aggregated: dict[tuple[str, str], tuple[bytes, str]] = {}

    def answer(self, request: Request) -> Reply | None:
        """Return the reply to a discovery request, None for another path."""
        if request.method not in ("GET", "HEAD"):
            return None
        path = request.path.rstrip("/")
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._aggregated.clear()
            self._generation = self._registry.generation
        if path in ("/api", "/apis"):
            aggregated = self._aggregated_reply(request, path)
            if aggregated is not None:
                return aggregated
        document = self._document(path)
        if document is None:
            return None
        form = _form(request)
        headers = {"content-type": form.content_type, "cache-control": "no-cache, private"}
        return Reply(status=200, headers=headers, body=encode_document(document, form))

    def _document(self, path: str) -> Document | None:
        document = self._documents.get(path)
        if document is None:
            document = self._build(path)
            if document is not None:
                self._documents[path] = document
        return document

    def _build(self, path: str) -> Document | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["api"]:
                addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}]
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self.groups().items()]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["apis", group]:
                versions = self.groups().get(group)
                return (
                    None
                    if versions is None
                    else {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
                )
            case ["api", "v1"]:
                return self._resource_list("", "v1")
            case ["apis", group, version]:
                return self._resource_list(group, version)
        return None

    def groups(self) -> dict[str, list[str]]:
        """Return the named groups: built-in ones, then custom ones by name. Preferred versions come first."""
        named = {name: versions for name, versions in self._registry.groups().items() if name}
        custom = [
            name for name in named if self._registry.in_group_version(name, named[name][0])[0].is_custom
        ]
        ordered = [name for name in named if name not in custom] + sorted(custom)
        return {name: sorted(named[name], key=version_priority) for name in ordered}

    def _resource_list(self, group: str, version: str) -> Document | None:
        if not self._registry.has_group_version(group, version):
            return None
        entries: list[Document] = []
        for info in self._registry.in_group_version(group, version):
            entries.append(_resource(info))
            entries += [_subresource(info, sub) for sub in info.subresources]
        name = f"{group}/{version}" if group else version
        kind: Document = {"kind": "APIResourceList"}
        if group:
            kind["apiVersion"] = "v1"
        return {**kind, "groupVersion": name, "resources": entries}

    # Aggregated

    def _aggregated_reply(self, request: Request, path: str) -> Reply | None:
        accept = request.headers.get("accept", "").replace(" ", "")
        requested = next((match for part in accept.split(",") if (match := _AGGREGATED.match(part))), None)
        if requested is None:
            if "apidiscovery" in accept and "application/json" not in re.sub(
                r"application/json;g=\S*?(,|$)", "", accept
            ):
                raise _not_acceptable()
            return None
        body, etag = self._aggregate(path, requested[1])
        headers = {
            "cache-control": "public",
            "etag": etag,
            "vary": "Accept",
        }
        if request.headers.get("if-none-match") == etag:
            return Reply(status=304, headers=headers)
        headers["content-type"] = requested[0]
        return Reply(status=200, headers=headers, body=body)

    def _aggregate(self, path: str, version: str) -> tuple[bytes, str]:
        aggregated = self._aggregated.get((path, version))
        if aggregated is None:
            groups = {"": ["v1"]} if path == "/api" else self.groups()
            document = {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": [self._group_discovery(name, versions) for name, versions in groups.items()],
            }
            body = msgspec.json.encode(document)
            etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
            aggregated = self._aggregated[path, version] = body, etag
        return aggregated

    def _group_discovery(self, group: str, versions: list[str]) -> Document:
        return {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        _resource_discovery(info) for info in self._registry.in_group_version(group, version)
                    ],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }


def _form(request: Request) -> Form:
    """Return the form that the client accepts, JSON or YAML. Raises StatusError 406 if it accepts neither."""
    accept = request.headers.get("accept", "")
    pretty = request.headers.get("user-agent", "").startswith(("curl", "Wget", "Mozilla/5.0"))
    medias = [part.partition(";")[0].strip() for part in accept.split(",")] if accept else ["*/*"]
    for media in medias:
        if media in ("application/json", "*/*", "application/*"):
            return Form(pretty=pretty)
        if media == "application/yaml":
            return Form(media="yaml")
    raise _not_acceptable()


def _not_acceptable() -> StatusError:
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def _group(name: str, versions: list[str]) -> Document:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _verbs(info: ResourceInfo) -> list[str]:
    """Return the verbs of a resource; while its definition is being deleted, it accepts no writes."""
    deleting = info.definition is not None and info.definition["metadata"].get("deletionTimestamp")
    return (
        [verb for verb in info.verbs if verb not in ("create", "update", "patch")]
        if deleting
        else list(info.verbs)
    )


def _with_optional(entry: Document, info: ResourceInfo) -> Document:
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    return entry


def _resource(info: ResourceInfo) -> Document:
    entry: Document = {
        "name": info.resource,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": _verbs(info),
    }
    _with_optional(entry, info)
    if "list" in info.verbs and info.resource != "componentstatuses":
        entry["storageVersionHash"] = _storage_hash(info)
    return entry


def _storage_hash(info: ResourceInfo) -> str:
    group = info.group if info.storage_group is None else info.storage_group
    text = f"{group}/{info.storage_version or info.version}/{info.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _subresource(info: ResourceInfo, sub: Subresource) -> Document:
    entry: Document = {
        "name": f"{info.resource}/{sub.name}",
        "singularName": "",
        "namespaced": info.namespaced,
    }
    if sub.group:
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind or info.kind, "verbs": list(sub.verbs)}


def _resource_discovery(info: ResourceInfo) -> Document:
    # Built-in resources have only their kind here; custom ones their group and version too.
    own = (info.group, info.version) if info.is_custom else ("", "")
    entry: Document = {
        "resource": info.resource,
        "responseKind": {"group": own[0], "version": own[1], "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": _verbs(info),
    }
    _with_optional(entry, info)
    if info.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or own[0],
                    "version": sub.version or own[1],
                    "kind": sub.kind or info.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in info.subresources
        ]
    return entry

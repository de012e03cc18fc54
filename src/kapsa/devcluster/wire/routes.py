"""Routes: the resource that a request's path names, and the verb of the request."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.query import is_true, parse_query

__all__ = ["ResourceRoute", "parse", "verb_of"]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class ResourceRoute(msgspec.Struct, frozen=True, gc=False):
    """A path under `/api` or `/apis` that names a resource."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """The rest of the path after the subresource, such as that of a proxied request."""
    watch: bool = False
    """True for the deprecated `/watch/` paths."""


def parse(path: str) -> ResourceRoute | None:
    """Return the resource that a path names; None for other paths, such as discovery and health."""
    if "%" in path:
        path = unquote(path)
    parts = path.removeprefix("/").rstrip("/").split("/")
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis" and parts[1]:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = False
    if rest[0] == "watch" and len(rest) > 1:
        watch, rest = True, rest[1:]
    namespace = ""
    # A request about a namespace itself has no namespace.
    if rest[0] == "namespaces" and len(rest) > 2 and (rest[2] not in _NAMESPACE_SUBRESOURCES or group):
        namespace, rest = rest[1], rest[2:]
    count = len(rest)
    return ResourceRoute(
        group,
        version,
        rest[0],
        namespace,
        rest[1] if count > 1 else "",
        rest[2] if count > 2 else "",
        "/".join(rest[3:]) if count > 3 else "",
        watch,
    )


def verb_of(request: Request, route: ResourceRoute) -> str:
    """Return the verb as authorization and fault plans name it; empty for a method without one."""
    method = request.method
    if method == "GET":
        if route.watch:
            return "watch"
        if route.name:
            return "get"
        return "watch" if "watch" in request.query and _is_watch(request.query) else "list"
    if method == "DELETE":
        return "delete" if route.name else "deletecollection"
    return _VERBS.get(method, "")


def _is_watch(query: str) -> bool:
    values = parse_query(query).get("watch")
    return values is not None and is_true(values[0])

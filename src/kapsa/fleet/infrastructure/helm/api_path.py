"""The resource that the path of a request to an API server names."""

from urllib.parse import unquote

import msgspec

__all__ = ["ApiPath", "parse_path"]


class ApiPath(msgspec.Struct, frozen=True):
    """A resource, or one object of it, in RBAC's terms."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        kind = f"{kind}/{self.subresource}" if self.subresource else kind
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{kind} {name}".rstrip()


def parse_path(path: str) -> ApiPath | None:
    """Return what a path without its query names; None if it is not the path of a resource.

    Segments are decoded one by one: an encoded letter names the same resource, and an encoded slash names none.
    """
    segments = [unquote(segment) for segment in path.removeprefix("/").split("/")]
    if any(segment in ("", ".", "..") or "/" in segment for segment in segments):
        return None
    if segments[0] == "api" and len(segments) > 2:
        group, rest = "", segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, rest = segments[1], segments[3:]
    else:
        return None
    namespace = ""
    # `namespaces/shop` is an object, `namespaces/shop/pods` a resource in it; two subresources look like the latter.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    return ApiPath(group, rest[0], namespace, name, subresource)

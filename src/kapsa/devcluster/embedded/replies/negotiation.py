"""Content negotiation: JSON or YAML; whole objects, their metadata, or a table."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.status_errors import StatusError

__all__ = ["Form", "negotiate"]

_TARGETS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_META_VERSIONS = ("v1", "v1beta1")
_BROWSERS = ("curl", "Wget", "Mozilla/5.0")


class Form(msgspec.Struct, frozen=True):
    """The form of a reply."""

    media: str = "json"
    """json or yaml."""
    target: str = ""
    """The kind to convert objects to; empty for whole objects."""
    meta_version: str = "v1"
    pretty: bool = False

    @property
    def content_type(self) -> str:
        return f"application/{self.media}"

    @property
    def is_plain(self) -> bool:
        """True if the stored bytes can be sent unchanged."""
        return self is _JSON or (self.media == "json" and not self.target and not self.pretty)


_JSON = Form()
_YAML = Form(media="yaml")


def negotiate(
    request: Request, *, collection: bool = False, transforms: bool = True, stream: bool = False
) -> Form:
    """Return the form that the Accept header requests. Raises a 406 StatusError if none is available.

    A `collection` can also be watched, which the error lists. An endpoint that `transforms` can convert its
    objects to tables or metadata. A `stream` is a watch, which cannot be YAML.
    """
    accept = request.headers.get("accept", "")
    form = _parse(accept, transforms, stream) if accept else _JSON
    if form is None:
        raise _not_acceptable(accept, collection=collection, stream=stream)
    if _wants_pretty(request):
        return msgspec.structs.replace(form, pretty=True)
    return form


_WHOLE = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")


def _not_acceptable(accept: str, *, collection: bool, stream: bool) -> StatusError:
    """Return the error of kube-apiserver's router, which checks media types only, or of the endpoint."""
    medias = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not medias & {*_WHOLE, "*/*"}:
        available = (*_WHOLE, *_STREAMS) if collection else _WHOLE
        message = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(available)
        return StatusError(406, "NotAcceptable", message, details={})
    offered: tuple[str, ...] = _STREAMS if stream else _WHOLE
    message = "only the following media types are accepted: " + ", ".join(offered)
    return StatusError(406, "NotAcceptable", message)


def _wants_pretty(request: Request) -> bool:
    if "pretty" in request.query:
        value = parse_query(request.query).get("pretty", [""])[0]
        if value:
            return value in ("1", "t", "T", "true", "TRUE", "True")
    return request.headers.get("user-agent", "").startswith(_BROWSERS)


@lru_cache(maxsize=256)
def _parse(accept: str, transforms: bool, stream: bool) -> Form | None:
    clauses = [_clause(part) for part in accept.split(",")]
    for media, parameters, _ in sorted(clauses, key=lambda clause: -clause[2]):
        form = _form(media, parameters, transforms, stream)
        if form is not None:
            return form
    return None


def _clause(part: str) -> tuple[str, dict[str, str], float]:
    media, *pieces = (piece.strip() for piece in part.split(";"))
    parameters = {}
    for piece in pieces:
        key, _, value = piece.partition("=")
        parameters[key.strip()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return media.lower(), parameters, quality


def _form(media: str, parameters: dict[str, str], transforms: bool, stream: bool) -> Form | None:
    if media in ("application/json", "*/*"):
        form = _JSON
    elif media == "application/yaml" and not stream:
        form = _YAML
    else:
        return None
    if parameters.get("pretty") == "1":
        form = msgspec.structs.replace(form, pretty=True)
    target = parameters.get("as", "")
    if not target:
        return form if not parameters.get("g") else None
    group, version = parameters.get("g", ""), parameters.get("v", "")
    if not transforms or group != "meta.k8s.io" or version not in _META_VERSIONS or target not in _TARGETS:
        return None
    return msgspec.structs.replace(form, target=target, meta_version=version)

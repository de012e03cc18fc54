"""Kinds that are posted but never stored: Scale, Eviction, Binding, TokenRequest and DeleteOptions."""

from __future__ import annotations

from functools import partial
from typing import Any

from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.go_types import DecodingError, check_types
from kapsa.devcluster.embedded.kinds.builtins import definition_name
from kapsa.devcluster.embedded.kinds.definitions import definitions
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.status_errors import bad_request
from kapsa.schemas.schema import Schema

__all__ = ["BINDING", "EVICTION", "SCALE", "TOKEN_REQUEST", "decode_delete_options"]

Object = dict[str, Any]


def _posted(group: str, version: str, kind: str, definition: str = "") -> ResourceInfo:
    name = definition or definition_name(group, version, kind)
    load = partial(_schema, name)
    return ResourceInfo(
        group=group, version=version, resource="", kind=kind, namespaced=True, load_schema=load
    )


def _schema(name: str) -> Schema:
    return definitions().schema(name)


SCALE = _posted("autoscaling", "v1", "Scale")
EVICTION = _posted("policy", "v1", "Eviction")
BINDING = _posted("", "v1", "Binding")
TOKEN_REQUEST = _posted("authentication.k8s.io", "v1", "TokenRequest")
_DELETE_OPTIONS = _posted(
    "", "v1", "DeleteOptions", definition="io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
)
_NAMED_TYPES = {"propagationPolicy": "v1.DeletionPropagation", "preconditions.uid": "types.UID"}
"""Strings with a named type in Go."""


def decode_delete_options(body: bytes, content_type: str) -> Object:
    """Decode the options in the body of a DELETE. Raises StatusError 400 or 415 for anything else."""
    decoded = bodies.decode(body, content_type)
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise bad_request(bodies.no_object(decoded))
    if why := bodies.malformed_type(decoded):
        raise bad_request(why)
    kind = decoded.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise bad_request(bodies.unknown_kind(decoded.get("apiVersion") or "meta.k8s.io/v1", kind))
    try:
        check_types(_DELETE_OPTIONS.schema or Schema(), decoded, _DELETE_OPTIONS)
    except DecodingError as error:
        raise bad_request(_with_named_type(str(error))) from None
    return decoded


def _with_named_type(message: str) -> str:
    for path, name in _NAMED_TYPES.items():
        if message.endswith(f".{path} of type string"):
            return message.removesuffix("string") + name
    return message

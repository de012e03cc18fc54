"""Request bodies: JSON or YAML into Python objects, with the real server's complaints."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from .errors import ApiError, bad_request, unsupported_media_type
from .registry import ResourceInfo

__all__ = [
    "MAXIMUM_BYTES",
    "check_object",
    "decode",
    "decode_applied",
    "decode_json",
    "decode_patch",
    "decode_yaml",
    "media_type",
]

MAXIMUM_BYTES = 3 * 1024 * 1024
_DEPTH_LIMIT = 1000
_WRITABLE = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
_decode_json = msgspec.json.Decoder().decode


def media_type(header: str) -> str:
    """The media type of a Content-Type header, without parameters."""
    return header.partition(";")[0].strip().lower()


def decode(body: bytes, content_type: str) -> Any:
    """The decoded body, as its Content-Type says it is written."""
    kind = media_type(content_type)
    if kind in ("", "application/json", "*/*"):
        return decode_json(body)
    if kind == "application/yaml":
        return decode_yaml(body)
    if kind == "application/vnd.kubernetes.protobuf":
        raise unsupported_media_type(
            "the embedded devcluster does not read protobuf bodies; send application/json or application/yaml"
        )
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {_WRITABLE}"
    )


def decode_json(body: bytes) -> Any:
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise malformed(body, error) from None


def decode_yaml(body: bytes) -> Any:
    try:
        return yaml.load(body, Loader=_Loader)  # noqa: S506  a CSafeLoader below
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def decode_patch(body: bytes) -> Any:
    """A JSON or merge patch."""
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from None


def decode_applied(body: bytes) -> dict[str, Any]:
    """An applied configuration; it is YAML, of which JSON is a part."""
    applied = decode_json(body) if body.lstrip()[:1] == b"{" else decode_yaml(body)
    if not isinstance(applied, dict):
        raise bad_request("error decoding YAML: an applied configuration must be an object")
    return applied


def malformed(body: bytes, error: Exception) -> ApiError:
    """What the real server says of a body it cannot decode."""
    if not body.strip():
        return bad_request("EOF")
    return bad_request(f"couldn't get version/kind; json parse error: {error}")


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: timestamps stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def check_object(obj: Any, info: ResourceInfo) -> dict[str, Any]:
    """The body as an object of the kind the path asks for.

    :raises ApiError: 400 when it is something else.
    """
    if not isinstance(obj, dict):
        raise bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_json_type(obj)} into Go value of "
            'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    api_version, kind = obj.setdefault("apiVersion", info.api_version), obj.setdefault("kind", info.kind)
    if kind != info.kind:
        raise bad_request(
            f'{kind} in version "{api_version}" cannot be handled as a {info.kind}: '
            f"converting to known kind failed"
        )
    if api_version != info.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({info.api_version})"
        )
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = {}
    elif not isinstance(metadata, dict):
        raise bad_request(
            f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: json: cannot unmarshal '
            f"{_json_type(metadata)} into Go struct field {info.kind}.metadata of type v1.ObjectMeta"
        )
    return obj


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"

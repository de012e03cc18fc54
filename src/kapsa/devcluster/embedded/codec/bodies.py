"""Request bodies: JSON, YAML and protobuf into Python objects, with the errors of the real server."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec import protobuf
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.devcluster.wire import go_json
from kapsa.devcluster.wire.go_json import TOO_DEEP, json_type
from kapsa.devcluster.wire.status_errors import StatusError, bad_request, invalid, unsupported_media_type
from kapsa.schemas.field_errors import invalid as invalid_field
from kapsa.schemas.go_format import quote

__all__ = [
    "another_type",
    "builtin_kind",
    "check_kind",
    "decode",
    "decode_applied",
    "decode_object",
    "decode_patch",
    "is_yaml",
    "malformed_type",
    "media_type",
    "no_object",
    "unknown_conversion",
    "unknown_kind",
]

_SUMMARY_BYTES = 30


def _number(text: str) -> float:
    """Return a number as the real server stores it: whole ones, such as 1.0 and 1e3, without a fraction."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


_decode_json = msgspec.json.Decoder(float_hook=_number).decode


class _MalformedError(ValueError):
    """A body that cannot be decoded, with the error of Go's decoder."""


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return header.partition(";")[0].strip().lower()


def _parse(body: bytes, content_type: str, *, custom: bool = False) -> Any:
    kind = media_type(content_type)
    if kind == "application/json" or not content_type:
        return _json(body)
    if kind == "application/yaml":
        return _yaml(body)
    if kind == protobuf.MEDIA_TYPE and not custom:
        return _protobuf(body)
    accepted = "application/json, application/yaml" + ("" if custom else f", {protobuf.MEDIA_TYPE}")
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def _json(body: bytes) -> Any:
    try:
        return _decode_json(body)
    except RecursionError:
        raise _MalformedError(go_json.syntax_error(body) or TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = go_json.syntax_error(body)
        if problem:
            raise _MalformedError(problem) from None
        return _forgiving(body, error)


def _forgiving(body: bytes, error: Exception) -> Any:
    """Decode JSON with invalid Unicode, which Go replaces."""
    try:
        lenient = json.dumps(json.loads(body.decode(errors="replace")), ensure_ascii=False)
        text = lenient.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return _decode_json(text.encode())
    except (ValueError, RecursionError):
        raise _MalformedError(str(error)) from None


def _yaml(body: bytes) -> Any:
    # Most clients send JSON or protobuf, and need not wait for PyYAML when the server starts.
    from kapsa.devcluster.embedded.codec import go_yaml

    try:
        loaded = go_yaml.load(body)
        # Fails for what YAML allows and JSON does not, such as keys that are lists, and infinity.
        return _decode_json(msgspec.json.encode(loaded))
    except RecursionError:
        raise _MalformedError(f"yaml: {TOO_DEEP}") from None
    except go_yaml.MalformedYamlError as error:
        raise _MalformedError(str(error)) from None
    except (ValueError, TypeError) as error:
        raise _MalformedError(f"yaml: {error}") from None


def _protobuf(body: bytes) -> Any:
    try:
        return protobuf.decode(body)
    except protobuf.MalformedProtobufError as error:
        raise _MalformedError(str(error)) from None


def is_yaml(content_type: str) -> bool:
    return media_type(content_type) == "application/yaml"


def decode(body: bytes, content_type: str) -> Any:
    """Decode a body of a kind that is never stored. Raises StatusError 400 or 415."""
    try:
        return _parse(body, content_type)
    except _MalformedError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def decode_object(body: bytes, content_type: str, info: ResourceInfo) -> dict[str, Any]:
    """Decode a body that must be an object; `check_kind` checks its kind. Raises StatusError 400 or 415."""
    try:
        decoded = _parse(body, content_type, custom=info.is_custom)
    except _MalformedError as error:
        why = str(error)
        if not why.startswith("yaml: ") and media_type(content_type) != protobuf.MEDIA_TYPE:
            why = f"couldn't get version/kind; json parse error: {why}"
        raise _unrecognized(body, why, info) from None
    if isinstance(decoded, dict):
        return decoded
    if decoded is None and not info.is_custom:
        return {}
    raise _unrecognized(body, no_object(decoded), info)


def no_object(value: Any) -> str:
    """Return the error for a value that must be an object."""
    into = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    why = f"json: cannot unmarshal {json_type(value)} into Go value of type {into}"
    return f"couldn't get version/kind; json parse error: {why}"


def _unrecognized(body: bytes, why: str, info: ResourceInfo) -> StatusError:
    return bad_request(
        f"the object provided is unrecognized (must be of type {info.kind}): {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    start, more = body[:_SUMMARY_BYTES], " ..." if len(body) > _SUMMARY_BYTES else ""
    return (start.decode(errors="replace") if body[:1] == b"{" else start.hex()) + more


def decode_patch(body: bytes, *, strategic: bool = False) -> Any:
    """Decode a patch in JSON. Raises StatusError 400."""
    try:
        return _json(body)
    except _MalformedError as error:
        raise bad_request(str(error) if strategic else f"error decoding patch: {error}") from None


def decode_applied(body: bytes) -> dict[str, Any]:
    """Decode an applied configuration: YAML, or JSON, which decodes faster. Raises StatusError 400."""
    if body.lstrip()[:1] == b"{":
        with contextlib.suppress(_MalformedError):
            decoded: dict[str, Any] = _json(body)
            return decoded
    try:
        applied = _yaml(body)
    except _MalformedError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if applied is not None and not isinstance(applied, dict):
        into = f"json: cannot unmarshal {json_type(applied)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {into}")
    return applied or {}


def check_kind(
    obj: dict[str, Any], info: ResourceInfo, registry: ResourceRegistry, body: bytes
) -> dict[str, Any]:
    """Set the apiVersion and kind that an object omits. Raises StatusError 400 when they are not the path's."""
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if why := malformed_type(obj):
        raise _unrecognized(body, why, info)
    if info.is_custom:
        _check_custom_kind(api_version or "", kind or "", info, obj, body)
    elif (api_version or info.api_version, kind or info.kind) != (info.api_version, info.kind):
        raise _wrong_kind(api_version or info.api_version, kind or info.kind, info, registry)
    obj["apiVersion"], obj["kind"] = info.api_version, info.kind
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = {}
    elif not isinstance(metadata, dict):
        into = "value" if info.is_custom else f"struct field {info.kind}.metadata"
        raise bad_request(
            f"{info.kind} in version {quote(info.version)} cannot be handled as a {info.kind}: "
            f"json: cannot unmarshal {json_type(metadata)} into Go {into} of type v1.ObjectMeta"
        )
    return obj


def malformed_type(obj: dict[str, Any]) -> str:
    """Return the error for an apiVersion or kind that is not a string; empty if they are."""
    for field in ("apiVersion", "kind"):
        value = obj.get(field)
        if value is not None and not isinstance(value, str):
            why = f"json: cannot unmarshal {json_type(value)} into Go struct field .{field} of type string"
            return f"couldn't get version/kind; json parse error: {why}"
    return ""


def _check_custom_kind(
    api_version: str, kind: str, info: ResourceInfo, obj: dict[str, Any], body: bytes
) -> None:
    """Check the type that a custom resource must name itself."""
    if not kind:
        raise _unrecognized(body, f"Object 'Kind' is missing in '{body.decode(errors='replace')}'", info)
    if api_version != info.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({info.api_version})"
        )
    if kind != info.kind:
        raise another_type(obj, "kind", info.kind)


def another_type(obj: dict[str, Any], field: str, expected: str) -> StatusError:
    """Return the error for a custom resource of another type than the path's."""
    metadata = obj.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    named = _OtherKind(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    return invalid(named, name, [invalid_field(field, obj[field], f"must be {expected}")])


class _OtherKind(msgspec.Struct, frozen=True):
    group: str
    kind: str
    resource: str = ""


_SCHEME = "pkg/runtime/scheme.go:111"


def _wrong_kind(api_version: str, kind: str, info: ResourceInfo, registry: ResourceRegistry) -> StatusError:
    version = api_version.rpartition("/")[2]
    builtin = builtin_kind(api_version, kind, registry)
    if kind == info.kind and (builtin is not None or protobuf.has_kind(api_version, kind)):
        return bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({info.api_version})"
        )
    why = unknown_kind(api_version, kind) if builtin is None else unknown_conversion(builtin, info)
    return bad_request(f"{kind} in version {quote(version)} cannot be handled as a {info.kind}: {why}")


def builtin_kind(api_version: str, kind: str, registry: ResourceRegistry) -> ResourceInfo | None:
    """Return a kind for which the real server has a Go type, or None."""
    group, _, version = api_version.rpartition("/")
    builtin = registry.find_kind(group, version, kind)
    return None if builtin is None or builtin.is_custom else builtin


def unknown_kind(api_version: str, kind: str) -> str:
    return f"no kind {quote(kind)} is registered for version {quote(api_version)} in scheme {quote(_SCHEME)}"


def unknown_conversion(builtin: ResourceInfo, info: ResourceInfo) -> str:
    package = info.group.partition(".")[0] or "core"
    return f"converting ({builtin.version}.{builtin.kind}) to ({package}.{info.kind}): unknown conversion"

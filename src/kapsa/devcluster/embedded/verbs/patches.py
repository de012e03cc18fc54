"""PATCH bodies: each media type as a function from the live object to the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded.apply import field_manager as apply
from kapsa.devcluster.embedded.apply import json_patch as patch
from kapsa.devcluster.embedded.apply.object_versions import converter
from kapsa.devcluster.embedded.apply.strategic_patch import strategic_merge_patch
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.scale import with_replicas
from kapsa.devcluster.embedded.codec.strict_decoding import (
    OPERATION_FIELDS,
    applied_duplicates,
    duplicate_fields,
    operation_problems,
)
from kapsa.devcluster.embedded.codec.typed_decoding import DecodingError, check_types
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.verbs.reset_fields import reset_fields
from kapsa.devcluster.embedded.verbs.writes import (
    Transform,
    WriteRequest,
    cannot_decode,
    shown_patched,
    tell_of_another_version,
)
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.go_json import json_type
from kapsa.schemas.schema import Schema

__all__ = ["APPLY", "patch_type", "scale_applying", "scale_change_of", "transform_of"]

Object = dict[str, Any]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_BUILT_IN = (JSON, MERGE, STRATEGIC, APPLY)
_CUSTOM = (JSON, MERGE, APPLY)


def patch_type(request: Request, info: ResourceInfo) -> str:
    """The media type of a patch.

    :raises ApiError: 415 when this kind cannot be patched that way.
    """
    kind = bodies.media_type(request.headers.get("content-type", ""))
    allowed = _CUSTOM if info.is_custom else _BUILT_IN
    if kind not in _BUILT_IN:
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if kind not in allowed:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed)
        )
    return kind


def transform_of(kind: str, request: Request, write: WriteRequest, backend: Backend) -> Transform:
    """What a patch of that type does to an object."""
    if kind == APPLY:
        return _applying(request.body, write, backend)
    if kind == STRATEGIC:
        return _restoring(request.body, write)
    if kind == JSON:
        operations = _operations(request.body, write)
        return _patching(lambda live: patch.json_patch(live, operations), write, backend)
    change = _decoded(request.body, write)
    return _patching(lambda live: patch.merge_patch(live, change), write, backend)


def scale_change_of(kind: str, request: Request) -> Callable[[Object], Any]:
    """What a patch that is no apply does to a Scale."""
    if kind == JSON:
        operations = bodies.decode_patch(request.body)
        return lambda scale: patch.json_patch(scale, operations)
    decoded = bodies.decode_patch(request.body)
    return lambda scale: patch.merge_patch(scale, decoded)


def scale_applying(request: Request, write: WriteRequest, backend: Backend) -> Transform:
    """An apply of a Scale: its replicas are applied to the object behind it."""
    info = write.info

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(info, write.name)
        scale = bodies.decode_applied(request.body)
        apply.check_request(scale, "autoscaling/v1", "Scale")
        metadata = {"name": (scale.get("metadata") or {}).get("name")}
        empty = {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
        result = _apply(live, with_replicas(info, empty, scale), write, backend)
        if info.is_custom:
            # The real server can tell of conflicts, but not turn a Scale into a custom resource again.
            raise apply.failed(
                f"failed to convert new object (/{write.name}; autoscaling/v1, Kind=Scale) to proper version: "
                "request to convert CR to an invalid group/version: autoscaling/v1"
            )
        return result

    return transform


def _decoded(body: bytes, write: WriteRequest, *, strategic: bool = False) -> Any:
    """A patch, of which the write is told what strict decoding finds in it."""
    decoded = bodies.decode_patch(body, strategic=strategic)
    if write.options.field_validation != "Ignore":
        write.duplicates = duplicate_fields(body, decoded, "")
    return decoded


def _operations(body: bytes, write: WriteRequest) -> Any:
    """A JSON patch, likewise."""
    decoded = bodies.decode_patch(body)
    if write.options.field_validation == "Ignore":
        return decoded
    for operation in decoded if isinstance(decoded, list) else ():
        for name, value in operation.items() if isinstance(operation, dict) else ():
            if value is not None and not isinstance(value, OPERATION_FIELDS.get(name, object)):
                what = f"{json_type(value)} into Go struct field jsonPatchOp.{name} of type string"
                raise errors.bad_request(f"error decoding patch: json: cannot unmarshal {what}")
    if isinstance(decoded, list) and all(isinstance(operation, dict) for operation in decoded):
        write.duplicates = operation_problems(body, decoded)
    return decoded


def _restoring(body: bytes, write: WriteRequest) -> Transform:
    """A strategic merge patch: only the kind's fields of the result count, not what it says it is."""
    decoded = _decoded(body, write, strategic=True)
    write.strategic = decoded

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        patched = strategic_merge_patch(live, decoded, write.info.schema)
        if patched.get("metadata") is None:
            patched["metadata"] = {}
        return patched

    return transform


def _patching(change: Callable[[Object], Any], write: WriteRequest, backend: Backend) -> Transform:
    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        patched = change(live)
        if not isinstance(patched, dict):
            raise cannot_decode(write, patched, bodies.no_object(patched))
        if why := bodies.malformed_type(patched):
            raise cannot_decode(write, patched, why)
        if write.info.is_custom:
            _check_custom_type(patched, write)
        else:
            _check_type(patched, write, backend)
        return _with_metadata(patched, write)

    return transform


def _check_type(patched: Object, write: WriteRequest, backend: Backend) -> None:
    """A patch may not turn the object into another kind; the result is first read as what it says it is."""
    info = write.info
    api_version, kind = patched.get("apiVersion") or info.api_version, patched.get("kind") or info.kind
    if (api_version, kind) != (info.api_version, info.kind):
        known = bodies.builtin_kind(api_version, kind, backend.registry)
        if known is None:
            raise cannot_decode(write, patched, bodies.unknown_kind(api_version, kind))
        if kind != info.kind:
            try:
                check_types(known.schema or Schema(), patched, known)
            except DecodingError as error:
                raise cannot_decode(write, patched, str(error)) from None
            raise cannot_decode(write, patched, bodies.unknown_conversion(known, info))
    patched["apiVersion"], patched["kind"] = info.api_version, info.kind


def _check_custom_type(patched: Object, write: WriteRequest) -> None:
    info = write.info
    if not patched.get("kind"):
        shown = shown_patched(write, patched)
        raise cannot_decode(write, patched, f"Object 'Kind' is missing in '{shown}'")
    patched["apiVersion"] = patched.get("apiVersion") or ""
    tell_of_another_version(write, patched)
    for field, expected in (("kind", info.kind), ("apiVersion", info.api_version)):
        if patched[field] != expected:
            raise bodies.another_type(patched, field, expected)


def _with_metadata(patched: Object, write: WriteRequest) -> Object:
    metadata = patched.get("metadata")
    if metadata is None:
        patched["metadata"] = {}
    elif not isinstance(metadata, dict):
        into = "value" if write.info.is_custom else f"struct field {write.info.kind}.metadata"
        kind = json_type(metadata)
        raise cannot_decode(
            write, patched, f"json: cannot unmarshal {kind} into Go {into} of type v1.ObjectMeta"
        )
    return patched


def _applying(body: bytes, write: WriteRequest, backend: Backend) -> Transform:
    def transform(live: Object | None) -> Object:
        applied = bodies.decode_applied(body)
        directive = write.options.field_validation
        duplicates = [] if directive == "Ignore" else applied_duplicates(body, applied)
        result = _apply(live, applied, write, backend)
        if duplicates and directive == "Strict":
            lines = "\n  ".join(["error converting YAML to JSON: yaml: unmarshal errors:", *duplicates])
            raise errors.bad_request(f"error strict decoding YAML: {lines}")
        write.warnings.extend(duplicates)
        return result

    return transform


def _apply(live: Object | None, applied: Object, write: WriteRequest, backend: Backend) -> Object:
    info = write.info
    return apply.apply(
        live,
        applied,
        manager=write.options.manager,
        schema=info.schema,
        force=bool(write.options.force),
        subresource=write.subresource,
        api_version=info.api_version,
        kind=info.kind,
        now=backend.now(),
        reset=reset_fields(info, write.subresource),
        convert=converter(backend.registry, info),
    )

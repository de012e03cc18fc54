"""PATCH bodies: each media type as a function from the live object to the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded import errors
from kapsa.devcluster.embedded.apply import json_patch as patch
from kapsa.devcluster.embedded.apply import server_side as apply
from kapsa.devcluster.embedded.apply.versioned import converter
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.endpoints.scale import with_replicas
from kapsa.devcluster.embedded.exchange import Request
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.writing import bodies
from kapsa.devcluster.embedded.writing.reset_fields import reset_fields
from kapsa.devcluster.embedded.writing.writes import Transform, Write, cannot_decode

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
        raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if kind not in allowed:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed)
        )
    return kind


def transform_of(kind: str, request: Request, write: Write, backend: Backend) -> Transform:
    """What a patch of that type does to an object."""
    if kind == APPLY:
        return _applying(request.body, write, backend)
    if kind == JSON:
        return _patching(request.body, patch.json_patch, write)
    if kind == MERGE:
        return _patching(request.body, patch.merge_patch, write)
    schema = write.info.schema
    return _patching(
        request.body, lambda live, change: patch.strategic_merge_patch(live, change, schema), write
    )


def scale_change_of(kind: str, request: Request) -> Callable[[Object], Object]:
    """What a patch that is no apply does to a Scale."""
    if kind == JSON:
        operations = bodies.decode_patch(request.body)
        return lambda scale: bodies.require_object(patch.json_patch(scale, operations))
    decoded = bodies.decode_patch(request.body)
    return lambda scale: patch.merge_patch(scale, decoded)


def scale_applying(request: Request, write: Write, backend: Backend) -> Transform:
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


def _patching(body: bytes, change: Callable[[Object, Any], Any], write: Write) -> Transform:
    decoded = bodies.decode_patch(body)

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        return _checked(change(live, decoded), live, write)

    return transform


def _checked(patched: Any, live: Object, write: Write) -> Object:
    """A patch may not turn the object into another kind, nor into something that is none."""
    if not isinstance(patched, dict):
        kind = bodies.json_type(patched)
        raise errors.bad_request(
            f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )
    if not write.info.is_custom and patched.get("kind") != live["kind"]:
        group = write.info.group.partition(".")[0] or "core"
        what = f"({write.info.version}.{patched.get('kind')}) to ({group}.{write.info.kind})"
        raise cannot_decode(write, patched, f"converting {what}: unknown conversion")
    metadata = patched.get("metadata")
    if metadata is None:
        patched["metadata"] = {}
    elif not isinstance(metadata, dict):
        into = "value" if write.info.is_custom else f"struct field {write.info.kind}.metadata"
        kind = bodies.json_type(metadata)
        raise cannot_decode(
            write, patched, f"json: cannot unmarshal {kind} into Go {into} of type v1.ObjectMeta"
        )
    return patched


def _applying(body: bytes, write: Write, backend: Backend) -> Transform:
    def transform(live: Object | None) -> Object:
        return _apply(live, bodies.decode_applied(body), write, backend)

    return transform


def _apply(live: Object | None, applied: Object, write: Write, backend: Backend) -> Object:
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

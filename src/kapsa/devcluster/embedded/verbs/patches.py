"""Patches: each media type as a function from the live object to the requested one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply import field_manager as apply
from kapsa.devcluster.embedded.apply import json_patch
from kapsa.devcluster.embedded.apply.conflicts import ApplyConflict
from kapsa.devcluster.embedded.apply.object_versions import converter
from kapsa.devcluster.embedded.apply.strategic_patch import strategic_merge_patch
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec import bodies
from kapsa.devcluster.embedded.codec.go_types import DecodingError, check_types
from kapsa.devcluster.embedded.codec.scale import with_replicas
from kapsa.devcluster.embedded.codec.strict_checks import (
    OPERATION_FIELDS,
    applied_duplicates,
    duplicate_fields,
    operation_problems,
)
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.embedded.requests.parameters import WriteMethod, WriteParameters
from kapsa.devcluster.embedded.verbs.decoder import cannot_decode, check_claimed_version, shown_patched
from kapsa.devcluster.embedded.verbs.reset_fields import reset_fields
from kapsa.devcluster.embedded.verbs.writes import Transform
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.go_json import json_type
from kapsa.schemas.schema import Schema

__all__ = [
    "Patch",
    "decode",
    "media_type_of",
    "method_of",
    "scale_applying",
    "scale_change_of",
    "transform_of",
]

Object = dict[str, Any]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_BUILT_IN = (JSON, MERGE, STRATEGIC, APPLY)
_CUSTOM = (JSON, MERGE, APPLY)
_REPLICAS = ("f:spec", "f:replicas")


class Patch(msgspec.Struct, frozen=True):
    """A decoded patch."""

    media_type: str
    body: bytes
    content: Any = None
    """The patch itself. None for an apply, which is decoded later, when the live object has been read."""
    strict_problems: list[str] = []
    """Unknown and duplicate fields of the patch."""

    @property
    def strategic(self) -> Any:
        """The content of a strategic merge patch; None for every other patch."""
        return self.content if self.media_type == STRATEGIC else None


def media_type_of(request: Request, info: ResourceInfo) -> str:
    """Return the media type of a patch. Raises StatusError 415 for one that this kind does not support."""
    media_type = bodies.media_type(request.headers.get("content-type", ""))
    allowed = _CUSTOM if info.is_custom else _BUILT_IN
    if media_type not in _BUILT_IN:
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if media_type not in allowed:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed)
        )
    return media_type


def method_of(media_type: str) -> WriteMethod:
    """Return the method of a write with a patch of this type."""
    return WriteMethod.APPLY if media_type == APPLY else WriteMethod.PATCH


def decode(media_type: str, body: bytes, parameters: WriteParameters) -> Patch:
    """Decode a patch. Raises StatusError 400 for a malformed one."""
    if media_type == APPLY:
        return Patch(media_type, body)
    content = bodies.decode_patch(body, strategic=media_type == STRATEGIC)
    if parameters.field_validation == "Ignore":
        return Patch(media_type, body, content)
    problems = (
        _operation_problems(body, content) if media_type == JSON else duplicate_fields(body, content, "")
    )
    return Patch(media_type, body, content, problems)


def _operation_problems(body: bytes, operations: Any) -> list[str]:
    """Return the strict problems of a JSON patch. Raises StatusError 400 for a field of the wrong type."""
    for operation in operations if isinstance(operations, list) else ():
        for name, value in operation.items() if isinstance(operation, dict) else ():
            if value is not None and not isinstance(value, OPERATION_FIELDS.get(name, object)):
                what = f"{json_type(value)} into Go struct field jsonPatchOp.{name} of type string"
                raise errors.bad_request(f"error decoding patch: json: cannot unmarshal {what}")
    if isinstance(operations, list) and all(isinstance(operation, dict) for operation in operations):
        return operation_problems(body, operations)
    return []


def transform_of(patch: Patch, write: WriteRequest, backend: Backend) -> Transform:
    """Return the function that applies a patch to the live object."""
    if patch.media_type == APPLY:
        return _applying(patch.body, write, backend)
    if patch.media_type == STRATEGIC:
        return _restoring(patch.content, write)
    if patch.media_type == JSON:
        return _patching(lambda live: json_patch.json_patch(live, patch.content), write, backend)
    return _patching(lambda live: json_patch.merge_patch(live, patch.content), write, backend)


def scale_change_of(media_type: str, request: Request) -> Callable[[Object], Any]:
    """Return the function that applies a JSON or merge patch to a Scale."""
    if media_type == JSON:
        operations = bodies.decode_patch(request.body)
        return lambda scale: json_patch.json_patch(scale, operations)
    decoded = bodies.decode_patch(request.body)
    return lambda scale: json_patch.merge_patch(scale, decoded)


def scale_applying(request: Request, write: WriteRequest, backend: Backend) -> Transform:
    """Return the function that applies the replicas of an applied Scale to its object."""
    info = write.info

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(info, write.name)
        scale = bodies.decode_applied(request.body)
        apply.check_request(scale, "autoscaling/v1", "Scale")
        metadata = {"name": (scale.get("metadata") or {}).get("name")}
        empty = {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
        try:
            result = _apply(live, with_replicas(info, empty, scale), write, backend)
        except ApplyConflict as error:
            raise _seen_by_scale(error) from error
        if info.is_custom:
            # The real server detects conflicts, but cannot convert the Scale back into a custom resource.
            raise apply.failed(
                f"failed to convert new object (/{write.name}; autoscaling/v1, Kind=Scale) to proper version: "
                "request to convert CR to an invalid group/version: autoscaling/v1"
            )
        return result

    return transform


def _seen_by_scale(error: ApplyConflict) -> ApplyConflict:
    """Return the conflict in the terms of a Scale, the one field of which is the number of replicas."""
    return ApplyConflict(
        (manager._replace(api_version="autoscaling/v1") if manager.api_version else manager, _REPLICAS)
        for manager, _ in error.conflicts
    )


def _restoring(content: Any, write: WriteRequest) -> Transform:
    """Return the function that applies a strategic merge patch, without a check of the result's type."""

    def transform(live: Object | None) -> Object:
        if live is None:
            raise errors.not_found(write.info, write.name)
        patched = strategic_merge_patch(live, content, write.info.schema)
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
    """Raise StatusError when a patch changes the type; the result is first decoded as the new type."""
    info = write.info
    api_version, kind = patched.get("apiVersion") or info.api_version, patched.get("kind") or info.kind
    if (api_version, kind) != (info.api_version, info.kind):
        builtin = bodies.builtin_kind(api_version, kind, backend.registry)
        if builtin is None:
            raise cannot_decode(write, patched, bodies.unknown_kind(api_version, kind))
        if kind != info.kind:
            try:
                check_types(builtin.schema or Schema(), patched, builtin)
            except DecodingError as error:
                raise cannot_decode(write, patched, str(error)) from None
            raise cannot_decode(write, patched, bodies.unknown_conversion(builtin, info))
    patched["apiVersion"], patched["kind"] = info.api_version, info.kind


def _check_custom_type(patched: Object, write: WriteRequest) -> None:
    info = write.info
    if not patched.get("kind"):
        shown = shown_patched(write, patched)
        raise cannot_decode(write, patched, f"Object 'Kind' is missing in '{shown}'")
    patched["apiVersion"] = patched.get("apiVersion") or ""
    check_claimed_version(write, patched)
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
        directive = write.parameters.field_validation
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
        manager=write.parameters.manager,
        schema=info.schema,
        force=bool(write.parameters.force),
        subresource=write.subresource,
        api_version=info.api_version,
        kind=info.kind,
        now=backend.now(),
        reset=reset_fields(info, write.subresource),
        convert=converter(backend.registry, info),
    )
